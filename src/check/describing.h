// How reports and watched memory name the requests of the program.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "check/early_accesses.h"
#include "check/requests.h"

namespace weft::check {

// Of a send queue: "Send 0x11 on queue pair 0x2a0001"
[[nodiscard]] std::string describe(ibv_wr_opcode opcode, std::uint64_t wr_id,
                                   std::uint32_t queue_pair);
[[nodiscard]] std::string describe(const Request& request, std::uint32_t queue_pair);

// A list of pieces that the device will refuse is taken for an empty one.
[[nodiscard]] std::vector<ibv_sge> pieces_of(const ibv_sge* list, int count);

[[nodiscard]] WatchedRequest sends_of(const QueuePairAccount& account, std::uint64_t wr_id);
// One of both is null, or the queue pair has a shared queue.
[[nodiscard]] WatchedRequest receives_of(const QueuePairAccount* account,
                                         const SharedReceivesAccount* shared, std::uint64_t wr_id);

}  // namespace weft::check
