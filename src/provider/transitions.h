// The table of queue pair states, for layers that explain why ibv_modify_qp(3) failed.
#pragma once

#include "device/queue_pair/transitions.h"

namespace weft::provider {

using device::Transition;
using device::transitions_of;

}  // namespace weft::provider
