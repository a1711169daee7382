// Verbs as C++ objects: libibverbs(3) and rdma_cm(7) with ownership, defaults and exceptions.
//
// Handles are move-only. Each keeps the objects that it was made from alive, so handles may be
// destroyed in any order, and destructors never throw. Every object gives access to its C object as
// raw(). Control calls throw weft::Error; posting and polling return a status and cost what the C
// calls cost.
#pragma once

#include "weft/deadline.hpp"
#include "weft/device_options.hpp"
#include "weft/error.hpp"
#include "weft/log.hpp"
#include "weft/verbs/address_handle.hpp"
#include "weft/verbs/async.hpp"
#include "weft/verbs/backend.hpp"
#include "weft/verbs/capture.hpp"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"
#include "weft/verbs/domain.hpp"
#include "weft/verbs/endpoint.hpp"
#include "weft/verbs/extended_completion.hpp"
#include "weft/verbs/gid.hpp"
#include "weft/verbs/kept_slice.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/memory_window.hpp"
#include "weft/verbs/operations.hpp"
#include "weft/verbs/post.hpp"
#include "weft/verbs/queue_pair.hpp"
#include "weft/verbs/queue_pair_builder.hpp"
#include "weft/verbs/rdma_cm.hpp"
#include "weft/verbs/shared_receive_queue.hpp"
#include "weft/verbs/slice.hpp"
#include "weft/verbs/text.hpp"
#include "weft/verbs/xrc_domain.hpp"
