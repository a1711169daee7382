// Posting, and what becomes of it.
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
  return {id, completion.status(), completion.opcode(), completion.size_bytes(),
          completion.immediate()};
}

}  // namespace

std::optional<RemoteBuffer> part_of(const RemoteBuffer& buffer, std::uint64_t offset,
                                    std::span<const LocalSlice> slices) {
  std::uint64_t bytes = 0;
  for (const LocalSlice& slice : slices) bytes += slice.size_bytes();
  if (bytes > buffer.size_bytes() || offset > buffer.size_bytes() - bytes) return std::nullopt;
  return buffer.slice(offset, bytes);
}

template <typename Post>
int Core::post(std::uint64_t id, SendFlags flags, const Kind& kind, const Post& post) {
  if (requests_.full()) collect_sends();
  if (requests_.full()) return ENOMEM;
  const auto ticket = requests_.add(id, has(flags, SendFlags::signaled), kind.ours, kind.claim);
  const int failed = post(ticket.id, with_signal(flags, ticket.signaled));
  if (failed) requests_.drop_last();
  if (failed == ENOMEM && kind.claim) kind.claim->device_is_full = true;
  return failed;
}

int Core::post_receive(std::span<const LocalSlice> into, std::uint64_t id) {
  return queue_pair_.post_receive(into, id);
}

int Core::post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags,
                    Claim* claim) {
  const std::lock_guard lock(posting_);
  return post(id, flags, {.claim = claim}, [&](std::uint64_t ticket, SendFlags with) {
    return queue_pair_.post_send(from, ticket, with);
  });
}

int Core::post_write(std::span<const LocalSlice> from, const RemoteBuffer& to, std::uint64_t id,
                     SendFlags flags, Claim* claim) {
  const std::lock_guard lock(posting_);
  return post(id, flags, {.claim = claim}, [&](std::uint64_t ticket, SendFlags with) {
    return queue_pair_.post_write(from, to, ticket, with);
  });
}

int Core::post_read(std::span<const LocalSlice> into, const RemoteBuffer& from, std::uint64_t id,
                    SendFlags flags, Claim* claim) {
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
    const Kind kind{.ours = !last, .claim = last ? claim : nullptr};
    const int failed =
        post(id, last ? flags : SendFlags::none, kind, [&](std::uint64_t ticket, SendFlags with) {
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
    if (!finished || !finished->tell) return;
    const Outcome outcome = outcome_of(completion, finished->user_id);
    if (Claim* claim = finished->claim) {
      claim->outcome = outcome;
      claim->turn->wake();
    } else {
      outcomes_[0].push_back(outcome);
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

void Core::collect_claims() {
  const std::lock_guard lock(posting_);
  collect_sends();
}

bool Core::is_settled(const Claim& claim) {
  const std::lock_guard lock(posting_);
  return claim.outcome.has_value();
}

std::optional<Outcome> Core::give_up(Claim& claim) {
  const std::lock_guard lock(posting_);
  requests_.disown(claim);
  return std::exchange(claim.outcome, std::nullopt);
}

bool Core::has_room() {
  const std::lock_guard lock(posting_);
  collect_sends();
  return !requests_.full();
}

// --- Advertising ---------------------------------------------------------------------------------

void Core::post_control(const Control::Write& write) {
  const int failed =
      post(0, SendFlags::none, {.ours = true}, [&](std::uint64_t ticket, SendFlags with) {
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

std::optional<Advertisement> Core::next_advertisement() {
  const std::lock_guard lock(posting_);
  if (greeted_) return std::exchange(greeted_, std::nullopt);
  if (!can_advertise()) {
    throw Error(EOPNOTSUPP, "the other side has not agreed to advertisements");
  }
  auto taken = control_->take();
  if (!taken) return std::nullopt;
  if (const auto write = control_->report()) post_control(*write);
  return taken;
}

int Core::advertisement_fd() {
  if (look_again_.fd() < 0) look_again_.set({});
  return look_again_.fd();
}

std::optional<Advertisement> Core::take_advertisement() {
  constexpr int shortest_us = 50;
  constexpr int longest_us = 2000;
  auto found = next_advertisement();
  if (found) {
    pause_us_ = 0;
    return found;
  }
  // Less often with time.
  const int pause_us = std::clamp(pause_us_ * 2, shortest_us, longest_us);
  pause_us_ = pause_us;
  look_again_.set(std::chrono::microseconds(pause_us));
  return std::nullopt;
}

}  // namespace weft::connection::detail
