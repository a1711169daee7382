// Byte streams over RDMA: what TCP sockets do, by writes into the peer's ring.
//
//   weft::stream::Listener listener({"", 7174});        weft::stream::Stream stream;
//   auto stream = listener.accept(10s);                 stream.connect({"192.0.2.1", 7174}, 10s);
//
// Both sides then send and receive bytes. No memory is registered and no queue polled by the user.
// Calls that make and end streams throw weft::Error; sending and receiving answer an Outcome. Every
// call that can wait takes a deadline: Deadline::now() never waits. A stream, a listener and an
// event queue each have a descriptor for poll(2), epoll(7) and their like.
// docs/stream-protocol.md says what goes over the wire.
#pragma once

#include "weft/stream/event_queue.hpp"
#include "weft/stream/listener.hpp"
#include "weft/stream/options.hpp"
#include "weft/stream/stream.hpp"
