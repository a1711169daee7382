// Byte streams over RDMA. A stream does what a TCP socket does, by RDMA writes into a ring of the
// peer.
//
//   weft::stream::Listener listener({"", 7174});        weft::stream::Stream stream;
//   auto stream = listener.accept(10s);                 stream.connect({"192.0.2.1", 7174}, 10s);
//
// Both sides then send and receive bytes. The program registers no memory and polls no queue. Calls
// that create and end streams throw weft::Error; sending and receiving return an Outcome. Every
// call that can block takes a deadline; with Deadline::now() it never blocks. A stream, a listener
// and an event queue each have a descriptor for poll(2), epoll(7) and similar calls.
// docs/stream-protocol.md specifies the protocol.
#pragma once

#include "weft/stream/async.hpp"
#include "weft/stream/event_queue.hpp"
#include "weft/stream/listener.hpp"
#include "weft/stream/options.hpp"
#include "weft/stream/stream.hpp"
