// Messages over RDMA: whole messages of any size in both directions, with callbacks from an event
// loop, or with coroutines.
//
//   weft::message::EventLoop loop;
//   auto listener = loop.listen({"", 7174}, [](Request request) {
//     request.accept({.message = [](Connection& peer, Received& got) { peer.send(got.bytes()); }});
//   });
//   loop.run();
//
// On a connection no message is lost, repeated or out of order. A slow receiver stalls its senders
// and has no other effect. docs/message-protocol.md specifies the protocol.
#pragma once

#include "weft/message/buffer.hpp"
#include "weft/message/connection.hpp"
#include "weft/message/coroutine.hpp"
#include "weft/message/event_loop.hpp"
#include "weft/message/limits.hpp"
#include "weft/message/listener.hpp"
#include "weft/message/status.hpp"
