// Carries bytes between a pipe to the program and what it is connected to, until both directions
// have ended or the program has closed its last descriptor.
#pragma once

#include <memory>

#include "interpose/descriptor.h"
#include "weft/stream/stream.hpp"

namespace weft::interpose {

void relay(Descriptor pipe, std::shared_ptr<stream::Stream> stream);
void relay(Descriptor pipe, Descriptor plain);

}  // namespace weft::interpose
