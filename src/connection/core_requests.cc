// Posting, and what becomes of it.
#include <algorithm>
#include <utility>

#include "connection/core.h"

namespace weft::connection::detail {
namespace {

constexpr int look_again_ms = 1;

bool has(SendFlags flags, SendFlags flag) {
  return static_cast<unsigned>(flags) & static_cast<unsigned>(flag);
}

SendFlags with_signal(SendFlags flags, bool signaled) {
  const auto bits = static_cast<unsigned>(flags) & ~static_cast<unsigned>(SendFlags::signaled);
  return static_cast<SendFlags>(bits) | (signaled ? SendFlags::signaled : SendFlags::none);
}

Outcome outcome_of(const verbs::Completion& completion, std::uint64_t id) {
  return {id, completion.status(), completion.opcode(), completion.size_bytes(),
          completion.immediate()};
}

}  // namespace

template <typename Post>
int Core::post(std::uint64_t id, SendFlags flags, bool ours, const Post& post) {
  if (requests_.full()) collect_sends();
  if (requests_.full()) return ENOMEM;
  const auto ticket = requests_.add(id, has(flags, SendFlags::signaled), ours);
  const int failed = post(ticket.id, with_signal(flags, ticket.signaled));
  if (failed) requests_.drop_last();
  return failed;
}

int Core::post_receive(std::span<const LocalSlice> into, std::uint64_t id) {
  return queue_pair_.post_receive(into, id);
}

int Core::post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags) {
  const std::lock_guard lock(posting_);
  return post(id, flags, false, [&](std::uint64_t ticket, SendFlags with) {
    return queue_pair_.post_send(from, ticket, with);
  });
}

int Core::post_write(std::span<const LocalSlice> from, const RemoteBuffer& to, std::uint64_t id,
                     SendFlags flags) {
  const std::lock_guard lock(posting_);
  return post(id, flags, false, [&](std::uint64_t ticket, SendFlags with) {
    return queue_pair_.post_write(from, to, ticket, with);
  });
}

int Core::post_read(std::span<const LocalSlice> into, const RemoteBuffer& from, std::uint64_t id,
                    SendFlags flags) {
  const std::lock_guard lock(posting_);
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
    // What comes before the last part is ours: one outcome stands for all.
    const int failed =
        post(id, last ? flags : SendFlags::none, !last, [&](std::uint64_t ticket, SendFlags with) {
          return queue_pair_.post_read(part, from.slice(offset, bytes), ticket, with);
        });
    if (failed) return failed;
    offset += bytes;
  }
  return 0;
}

// Polling and telling are one step: a completion also stands for those before it.
void Core::collect_sends() {
  send_.queue.for_each([this](const verbs::Completion& completion) {
    if (!Requests::is_ours(completion.id())) {
      outcomes_[0].push_back(outcome_of(completion, completion.id()));
      return;
    }
    const auto finished = requests_.finish(completion.id(), completion.ok());
    if (finished && finished->tell) {
      outcomes_[0].push_back(outcome_of(completion, finished->user_id));
    }
  });
}

void Core::collect(Queue queue, std::size_t count, std::vector<Outcome>& into) {
  const std::lock_guard lock(queue == Queue::send ? posting_ : receiving_);
  auto& outcomes = outcomes_[queue == Queue::send ? 0 : 1];
  if (queue == Queue::send) {
    collect_sends();
  } else {
    receive_.queue.for_each([&](const verbs::Completion& completion) {
      outcomes.push_back(outcome_of(completion, completion.id()));
    });
  }
  while (into.size() < count && !outcomes.empty()) {
    into.push_back(outcomes.front());
    outcomes.pop_front();
  }
}

std::vector<Outcome> Core::await(Queue queue, std::size_t count, Waiter& waiter) {
  std::vector<Outcome> found;
  std::unique_lock only_one(awaiting_[queue == Queue::send ? 0 : 1], std::defer_lock);
  while (!only_one.try_lock()) {
    if (waiter.wait_briefly(ended_.fd(), look_again_ms) != Woken::ready) return found;
  }
  const Side& from = side(queue);
  while (true) {
    collect(queue, count, found);
    if (found.size() == count) return found;
    from.queue.arm();
    collect(queue, count, found);  // what came before the queue was armed raises no event
    if (found.size() == count) return found;
    // Everything posted is flushed before the end is known: nothing more will come.
    look_at_events();
    if (ended_.raised()) return found;
    if (waiter.wait({from.channel.fd(), events_.fd()}) != Woken::ready) return found;
    while (from.channel.wait(Deadline::now())) continue;
  }
}

// --- Advertising ---------------------------------------------------------------------------------

void Core::post_control(const Control::Write& write) {
  const int failed = post(0, SendFlags::none, true, [&](std::uint64_t ticket, SendFlags with) {
    return queue_pair_.post_write(write.from, write.to, ticket, with);
  });
  if (failed) throw Error(failed, "cannot tell the peer of a buffer");
}

void Core::advertise(const Advertisement& advertisement) {
  const std::lock_guard lock(posting_);
  if (!can_advertise()) {
    throw Error(EOPNOTSUPP,
                "cannot advertise a buffer: the other side has not agreed to advertisements");
  }
  if (requests_.full()) collect_sends();
  if (requests_.full()) throw Error(EAGAIN, "cannot advertise a buffer: the send queue is full");
  const auto write = control_->announce(advertisement);
  if (!write) {
    throw Error(EAGAIN, "cannot advertise a buffer: the peer has not looked at the last ones yet");
  }
  post_control(*write);
}

std::optional<Advertisement> Core::await_advertisement(Waiter& waiter) {
  // A write into our memory wakes nobody: this looks again and again, less often with time.
  constexpr int longest_pause_ms = 2;
  int pause_ms = 0;
  while (true) {
    {
      const std::lock_guard lock(posting_);
      if (greeted_) return std::exchange(greeted_, std::nullopt);
      if (!can_advertise()) {
        throw Error(EOPNOTSUPP, "the other side has not agreed to advertisements");
      }
      if (auto taken = control_->take()) {
        if (const auto write = control_->report()) post_control(*write);
        return taken;
      }
    }
    if (ended_.raised()) return std::nullopt;
    look_at_events();
    if (waiter.wait_briefly(events_.fd(), pause_ms) != Woken::ready) return std::nullopt;
    pause_ms = std::min(pause_ms + 1, longest_pause_ms);
  }
}

}  // namespace weft::connection::detail
