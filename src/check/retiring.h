// Checks of requests when they complete, and when their queue pair drops them.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

#include "check/checker.h"

namespace weft::check {

// A completion that the program has polled from `cq`, with the opcode and the length that the
// device gave it. Returns the type of its queue pair, if this is one of the program's.
std::optional<ibv_qp_type> check_completion(Call& call, const ibv_cq* cq, const ibv_wc& completion);

// The queue pair was reset, or is destroyed: its requests are dropped.
void forget_requests(QueuePairAccount& account);

}  // namespace weft::check
