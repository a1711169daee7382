// What connections wait with: the conditions, waiters and suspensions of weft::verbs.
#pragma once

#include "verbs/conditions.h"
#include "verbs/suspension.h"
#include "verbs/wait_queue.h"
#include "verbs/waiter.h"

namespace weft::connection::detail {

using verbs::detail::check_woken;
using verbs::detail::Condition;
using verbs::detail::Descriptors;
using verbs::detail::DescriptorSet;
using verbs::detail::EventFlag;
using verbs::detail::Suspension;
using verbs::detail::Timer;
using verbs::detail::until;
using verbs::detail::Waiter;
using verbs::detail::WaitQueue;
using verbs::detail::WaitQueueEntry;
using verbs::detail::Woken;

}  // namespace weft::connection::detail
