// RDMA connections in few steps: connect or accept, allocate buffers, advertise them to the peer,
// send, receive, write, read, wait, disconnect.
//
//   weft::connection::Listener listener({"", 7174});           weft::connection::connect(...)
//   auto connection = listener.accept(std::chrono::seconds(10));
//
// The layer is built on weft::verbs, and every object hands out its verbs objects. Control calls
// throw weft::Error: ETIMEDOUT when the deadline has passed, ECANCELED when a stop was requested,
// ECONNREFUSED (as Rejected) when the peer rejected the connection. A call that timed out or was
// cancelled may be repeated, except connecting: the attempt is abandoned then.
#pragma once

#include "weft/connection/async.hpp"
#include "weft/connection/attempt.hpp"
#include "weft/connection/connection.hpp"
#include "weft/connection/listener.hpp"
#include "weft/connection/options.hpp"
