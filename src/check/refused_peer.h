// The check refused-peer.
#pragma once

#include <infiniband/verbs.h>

#include "check/checker.h"

namespace weft::check {

// Before a queue pair is destroyed, or the program ends: an access of its peer that was refused,
// and what was missing.
void check_refused_peer(Call& call, ibv_qp* qp);

}  // namespace weft::check
