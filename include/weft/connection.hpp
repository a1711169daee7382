// Connections for programs that want RDMA without its rituals: connect or accept, allocate buffers,
// tell the peer of them, send, receive, write, read, wait, disconnect.
//
//   weft::connection::Listener listener({"", 7174});           weft::connection::connect(...)
//   auto connection = listener.accept(std::chrono::seconds(10));
//
// Below are verbs objects, and every part hands them out. Control calls throw weft::Error:
// ETIMEDOUT at a deadline, ECANCELED where a stop was requested, ECONNREFUSED (as Rejected) where
// the peer said no. What has timed out or was cancelled may be called again, but for connecting:
// there the attempt is given up.
#pragma once

#include "weft/connection/async.hpp"
#include "weft/connection/attempt.hpp"
#include "weft/connection/connection.hpp"
#include "weft/connection/listener.hpp"
#include "weft/connection/options.hpp"
