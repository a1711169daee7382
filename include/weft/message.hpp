// Messages: whole ones, of any size and in both directions, with callbacks from an event loop.
//
//   weft::message::EventLoop loop;
//   auto listener = loop.listen({"", 7174}, [](Request request) {
//     request.accept({.message = [](Connection& peer, Received& got) { peer.send(got.bytes()); }});
//   });
//   loop.run();
//
// Nothing is lost, repeated or out of order on a connection; a receiver that takes its time stalls
// its senders, and nothing else. The wire form is in docs/message-protocol.md.
#pragma once

#include "weft/message/buffer.hpp"
#include "weft/message/connection.hpp"
#include "weft/message/coroutine.hpp"
#include "weft/message/event_loop.hpp"
#include "weft/message/limits.hpp"
#include "weft/message/listener.hpp"
#include "weft/message/status.hpp"
