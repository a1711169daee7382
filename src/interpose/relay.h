// Copies bytes between a pipe to the program and its peer, in two threads, until both directions
// have ended or all processes have closed the program's end of the pipe.
#pragma once

#include <memory>

#include "interpose/descriptor.h"
#include "weft/stream/stream.hpp"

namespace weft::interpose {

void relay(Descriptor pipe, std::shared_ptr<stream::Stream> stream);
void relay(Descriptor pipe, Descriptor plain);

}  // namespace weft::interpose
