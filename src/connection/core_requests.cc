// Posting requests, collecting their outcomes, and advertisements.
#include <algorithm>
#include <utility>

#include "connection/core_waits.h"

namespace weft::connection::detail {
namespace {

bool has(SendFlags flags, SendFlags flag) {
  return static_cast<unsigned>(flags) & static_cast<unsigned>(flag);
}

SendFlags with_signal(SendFlags flags, bool signaled) {
  const auto bits = static_cast<unsigned>(flags) & ~static_cast<unsigned>(SendFlags::signaled);
  return static_cast<SendFlags>(bits) | (signaled ? SendFlags::signaled : SendFlags::none);
}

Outcome outcome_of(const verbs::Completion& completion, std::uint64_t id) {
  return {id,
          completion.status(),
          completion.opcode(),
          completion.size_bytes(),
          completion.immediate(),
          completion.invalidated_rkey()};
}

}  // namespace

// Compared without a sum that could wrap around.
std::optional<RemoteBuffer> part_of(const RemoteBuffer& buffer, std::uint64_t offset,
                                    std::span<const LocalSlice> slices) {
  std::uint64_t bytes = 0;
  for (const LocalSlice& slice : slices) bytes += slice.size_bytes();
  if (bytes > buffer.size_bytes() || offset > buffer.size_bytes() - bytes) return std::nullopt;
  return buffer.slice(offset, bytes);
}

Core::QueueLock::QueueLock(Core& core, Queue queue)
    : of_queue_(core.released_[queue == Queue::send ? 0 : 1]),
      lock_(queue == Queue::send ? core.posting_ : core.receiving_) {}

template <typename Post>
// Frees entries by polling only when the queue is full: polling on every post would cost more.
int Core::post(std::uint64_t id, SendFlags flags, const Kind& kind, const Post& post) {
  if (requests_.full()) collect_sends();
  if (requests_.full()) return ENOMEM;
  const auto posting =
      requests_.add(id, has(flags, SendFlags::signaled), kind.internal, kind.awaited);
  const int failed = post(posting.id, with_signal(flags, posting.signaled));
  // The device has not accepted it, so no completion will come for its entry.
  if (failed) requests_.drop_last();
  if (!failed && kind.kept) kept_requests_.add(posting.id, *kind.kept);
  if (failed == ENOMEM && kind.awaited) kind.awaited->device_queue_full = true;
  return failed;
}

// A receive that is awaited, or keeps its slice, is posted with the lock held, so that its
// completion finds it.
int Core::post_receive(std::span<const LocalSlice> into, std::uint64_t id, AwaitedRequest* awaited,
                       const verbs::KeptSlice* kept) {
  std::unique_lock lock(receiving_, std::defer_lock);
  if (awaited || kept) {
    lock.lock();
    id = awaited_receives_.add(id, awaited, kept);
  }
  ++end_.receives_under_way;  // before the device can complete it
  const int failed = queue_pair_.post_receive(into, id);
  if (failed) --end_.receives_under_way;
  if (failed && lock) static_cast<void>(awaited_receives_.finish(id));
  if (failed && awaited) awaited->device_queue_full = failed == ENOMEM;
  return failed;
}

int Core::post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags,
                    AwaitedRequest* awaited, const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  const Kind kind{.awaited = awaited, .kept = kept};
  return post(id, flags, kind, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_send(from, wr_id, with);
  });
}

int Core::post_write(std::span<const LocalSlice> from, const RemoteBuffer& to, std::uint64_t id,
                     SendFlags flags, AwaitedRequest* awaited, const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  const Kind kind{.awaited = awaited, .kept = kept};
  return post(id, flags, kind, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_write(from, to, wr_id, with);
  });
}

int Core::post_send_with_immediate(const LocalSlice& from, std::uint32_t immediate,
                                   std::uint64_t id, SendFlags flags,
                                   const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  return post(id, flags, {.kept = kept}, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_send_with_immediate(from, immediate, wr_id, with);
  });
}

int Core::post_send_with_invalidate(const LocalSlice& from, std::uint32_t rkey, std::uint64_t id,
                                    SendFlags flags, const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  return post(id, flags, {.kept = kept}, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_send_with_invalidate(from, rkey, wr_id, with);
  });
}

int Core::post_write_with_immediate(const LocalSlice& from, const RemoteBuffer& to,
                                    std::uint32_t immediate, std::uint64_t id, SendFlags flags,
                                    const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  return post(id, flags, {.kept = kept}, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_write_with_immediate(from, to, immediate, wr_id, with);
  });
}

int Core::post_fetch_and_add(const LocalSlice& before, const RemoteBuffer& target,
                             std::uint64_t addend, std::uint64_t id, SendFlags flags,
                             const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  return post(id, flags, {.kept = kept}, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_fetch_and_add(before, target, addend, wr_id, with);
  });
}

int Core::post_compare_and_swap(const LocalSlice& before, const RemoteBuffer& target,
                                std::uint64_t expected, std::uint64_t desired, std::uint64_t id,
                                SendFlags flags, const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  return post(id, flags, {.kept = kept}, [&](std::uint64_t wr_id, SendFlags with) {
    return queue_pair_.post_compare_and_swap(before, target, expected, desired, wr_id, with);
  });
}

// Splits a read if its list is longer than the device's max_sge_rd (often 1 on iWARP). The last
// part carries the user's id and outcome; reads complete in order, so it covers the earlier
// parts as well.
//
// The device can refuse a later part when earlier ones are posted: its queue is full of requests
// that the user has posted directly, or a slice is invalid. The memory of the earlier parts is in
// use then, so the call does not fail; the last part that was posted reports the failure.
// Therefore all parts are posted signaled.
int Core::post_read(std::span<const LocalSlice> into, const RemoteBuffer& from, std::uint64_t id,
                    SendFlags flags, AwaitedRequest* awaited, const verbs::KeptSlice* kept) {
  const QueueLock lock(*this, Queue::send);
  const std::size_t reads =
      std::max<std::size_t>((into.size() + read_slices_ - 1) / read_slices_, 1);
  if (requests_.room() < reads) collect_sends();
  if (requests_.room() < reads) return ENOMEM;
  std::uint64_t offset = 0;
  for (std::size_t read = 0; read < reads; ++read) {
    const bool last = read + 1 == reads;
    const auto part = into.subspan(read * read_slices_,
                                   std::min(read_slices_, into.size() - read * read_slices_));
    std::uint64_t bytes = 0;
    for (const auto& slice : part) bytes += slice.size_bytes();
    // The parts before the last are internal requests: the user gets one outcome for all.
    const Kind kind{.internal = !last, .awaited = last ? awaited : nullptr, .kept = kept};
    const int failed = post(
        id, last ? flags : SendFlags::signaled, kind, [&](std::uint64_t wr_id, SendFlags with) {
          return queue_pair_.post_read(part, from.slice(offset, bytes), wr_id, with);
        });
    if (failed && read > 0) {
      requests_.fail_last(id, awaited);
      return 0;
    }
    if (failed) return failed;
    offset += bytes;
  }
  return 0;
}

// Polls and distributes under one lock: a completion also covers the unsignaled requests before it,
// so two threads must not process completions out of order. Wakes the waiters that do not poll:
// each completion frees room in the queue, and its outcome may be for one of them.
void Core::collect_sends() {
  const std::size_t polled = send_.queue.for_each([this](const verbs::Completion& completion) {
    // A request that the user has posted directly to the queue pair: its completion is passed on as
    // it is.
    if (!Requests::is_library_id(completion.id())) {
      outcomes_[0].push_back(outcome_of(completion, completion.id()));
      return;
    }
    kept_requests_.release(completion.id(), released_[0]);
    const auto finished = requests_.finish(completion.id(), completion.ok());
    if (!finished || !finished->report) return;
    Outcome outcome = outcome_of(completion, finished->user_id);
    if (finished->incomplete && outcome.ok()) outcome.status = IBV_WC_LOC_QP_OP_ERR;
    if (AwaitedRequest* awaited = finished->awaited) {
      awaited->outcome = outcome;
      awaited->entry->wake();
    } else {
      outcomes_[0].push_back(outcome);
    }
  });
  if (polled > 0) wait_queue(Queue::send).wake_others();
}

// Polls no more than callers wait for. The device counts what is left in the completion queue when
// it is destroyed.
void Core::collect_receives(std::size_t most) {
  constexpr std::size_t batch = 16;
  std::array<verbs::Completion, batch> some;
  while (outcomes_[1].size() < most) {
    const std::size_t wanted = std::min(batch, most - outcomes_[1].size());
    const auto got = receive_.queue.poll(std::span(some).first(wanted));
    for (const verbs::Completion& completion : got) take_receive(completion);
    if (got.size() < wanted) return;
  }
}

void Core::take_receive(const verbs::Completion& completion) {
  --end_.receives_under_way;
  auto receive = awaited_receives_.finish(completion.id());
  if (receive && receive->kept) released_[1].push_back(std::move(*receive->kept));
  const Outcome outcome = outcome_of(completion, receive ? receive->user_id : completion.id());
  if (receive && receive->awaited) {
    receive->awaited->outcome = outcome;
    receive->awaited->entry->wake();
  } else {
    outcomes_[1].push_back(outcome);
  }
}

void Core::collect(Queue queue, std::size_t count, std::vector<Outcome>& into) {
  const QueueLock lock(*this, queue);
  queue == Queue::send ? collect_sends() : collect_receives(count - std::min(count, into.size()));
  hand_out(queue, count, into);
  // The surplus is for the next waiters.
  if (queue == Queue::receive && !outcomes_[1].empty()) wait_queue(queue).wake_others();
}

void Core::take_outcomes(Queue queue, std::size_t count, std::vector<Outcome>& into) {
  const QueueLock lock(*this, queue);
  hand_out(queue, count, into);
}

// At most `count`: what is more belongs to other waiters of the queue.
void Core::hand_out(Queue queue, std::size_t count, std::vector<Outcome>& into) {
  auto& outcomes = outcomes_[queue == Queue::send ? 0 : 1];
  while (into.size() < count && !outcomes.empty()) {
    into.push_back(outcomes.front());
    outcomes.pop_front();
  }
}

// Receives that were polled for Connection::await() are left to its waiters.
void Core::poll(Queue queue) {
  const QueueLock lock(*this, queue);
  queue == Queue::send ? collect_sends() : collect_receives(SIZE_MAX);
  if (queue == Queue::receive && !outcomes_[1].empty()) wait_queue(queue).wake_others();
}

bool Core::is_settled(const AwaitedRequest& awaited) {
  const QueueLock lock(*this, awaited.queue);
  return awaited.outcome.has_value();
}

// Under the same lock as collect_sends(), so the outcome goes either here or to collect(), never to
// both.
std::optional<Outcome> Core::detach(AwaitedRequest& awaited) {
  const QueueLock lock(*this, awaited.queue);
  awaited.queue == Queue::send ? requests_.detach(awaited) : awaited_receives_.detach(awaited);
  return std::exchange(awaited.outcome, std::nullopt);
}

bool Core::has_room() {
  const QueueLock lock(*this, Queue::send);
  collect_sends();
  return !requests_.full();
}

bool Core::has_known_room() {
  const QueueLock lock(*this, Queue::send);
  return !requests_.full();
}

// --- Advertising ---------------------------------------------------------------------------------

// Unsignaled and internal: the user never sees it, and its entry is freed by a later completion.
void Core::post_control(const Control::Write& write) {
  const int failed =
      post(0, SendFlags::none, {.internal = true}, [&](std::uint64_t wr_id, SendFlags with) {
        return queue_pair_.post_write(write.from, write.to, wr_id, with);
      });
  if (failed) throw Error(failed, "cannot advertise a buffer");
}

// Advertisements share the send queue with the user's requests, and so may find it full.
void Core::advertise(const Advertisement& advertisement) {
  const QueueLock lock(*this, Queue::send);
  if (!can_advertise()) {
    throw Error(EOPNOTSUPP, "cannot advertise a buffer: the peer has not agreed to advertisements");
  }
  if (end_.disconnected || end_.flag.raised()) {
    throw Error(ENOTCONN, "cannot advertise a buffer: the connection has ended");
  }
  if (requests_.full()) collect_sends();
  if (requests_.full()) throw Error(EAGAIN, "cannot advertise a buffer: the send queue is full");
  const auto write = control_->announce(advertisement);
  if (!write) {
    throw Error(EAGAIN, "cannot advertise a buffer: the peer has not read the last ones yet");
  }
  post_control(*write);
  control_->note_announced();
}

// Where the user's requests fill the queue, a later call reports it.
void Core::report_taken() {
  const auto write = control_->report();
  if (!write) return;
  try {
    post_control(*write);
    control_->note_reported();
  } catch (const Error& error) {
    if (error.error_number() != ENOMEM) throw;
  }
}

// The buffer in the peer's private data comes first. Reports progress to the peer from time to
// time, so that it can reuse the ring's slots.
std::optional<Advertisement> Core::next_advertisement() {
  const QueueLock lock(*this, Queue::send);
  if (initial_advertisement_) return std::exchange(initial_advertisement_, std::nullopt);
  if (!can_advertise()) {
    throw Error(EOPNOTSUPP, "the peer has not agreed to advertisements");
  }
  auto taken = control_->take();
  report_taken();
  return taken;
}

// Readable at once on the first call, so that a program that waits first also takes its first look.
int Core::advertisement_fd() {
  if (advertisement_poll_.timer.fd() < 0) advertisement_poll_.timer.set({});
  return advertisement_poll_.timer.fd();
}

// Polls with increasing intervals, from 50 us to 2 ms, because no event announces an RDMA write.
std::optional<Advertisement> Core::take_advertisement() {
  constexpr int shortest_us = 50;
  constexpr int longest_us = 2000;
  auto found = next_advertisement();
  if (found) {
    advertisement_poll_.interval_us = 0;
    return found;
  }
  // Double the interval while nothing arrives.
  const int interval_us = std::clamp(advertisement_poll_.interval_us * 2, shortest_us, longest_us);
  advertisement_poll_.interval_us = interval_us;
  advertisement_poll_.timer.set(std::chrono::microseconds(interval_us));
  return std::nullopt;
}

}  // namespace weft::connection::detail
