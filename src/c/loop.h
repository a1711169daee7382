// The event loop of the C interface of messages.
#pragma once

#include "c/maker.h"
#include "weft/c/message.h"
#include "weft/message.hpp"

struct weft_loop {
  weft::message::EventLoop loop;
  weft::c::Maker maker;
};
