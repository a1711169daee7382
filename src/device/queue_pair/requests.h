// Requests of ibv_post_send(3) in the terms of the protocol core.
#pragma once

#include <infiniband/verbs.h>

#include <span>

#include "device/adapter.h"
#include "device/memory/memory_window.h"
#include "device/queue_pair/carrier.h"
#include "device/queue_pair/memory_access.h"
#include "iwarp/requester.h"
#include "iwarp/types.h"

namespace weft::device {

// False for what this device has no operation for.
[[nodiscard]] bool operation_of(ibv_wr_opcode opcode, iwarp::Operation& operation);

// Translates `given` into `request.work`, whose operation is set already. `slices` has room for
// given.num_sge slices and must live as long as the request. 0, or EINVAL where inline data is
// asked for and the data are going to be fetched.
// A bit for each value of iwarp::Operation that the user has taken away from the device.
[[nodiscard]] std::uint32_t missing_operations(const Adapter& adapter);
[[nodiscard]] int translate(const ibv_send_wr& given, bool signal_all,
                            std::span<iwarp::LocalSlice> slices, SendRequest& request);

// The bind of a window or the local invalidation that `given` asks for: 0, or EINVAL for a window
// of another context. What it names is checked when its turn comes.
[[nodiscard]] int translate_local(const ibv_send_wr& given, const ibv_context* context,
                                  MemoryAccess::LocalRequest& request);

// What ibv_post_send(3) returns for the answer of a send queue: 0, ENOMEM, EINVAL or EOPNOTSUPP.
[[nodiscard]] int error_of(iwarp::Requester::Posted posted);

}  // namespace weft::device
