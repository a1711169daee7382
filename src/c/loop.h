// The event loop of the C interface of messages.
#pragma once

#include "weft/c/message.h"
#include "weft/message.hpp"

struct weft_loop {
  weft::message::EventLoop loop;
};
