// The check posted-region.
#pragma once

#include <infiniband/verbs.h>

#include "check/checker.h"

namespace weft::check {

// A region that is about to be deregistered.
void check_deregistration(Call& call, const ibv_mr& mr);

}  // namespace weft::check
