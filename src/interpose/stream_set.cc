#include "interpose/stream_set.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <span>
#include <utility>

#include "base/pause.h"
#include "interpose/next.h"
#include "interpose/socket.h"

namespace weft::interpose {
namespace {

// Sets with larger numbers are the kernel's.
constexpr std::size_t most_sets = 1024;
// Further sockets in use are the kernel's: a look costs some 30 ns for each that is listed.
constexpr std::size_t most_listed = 256;
// A socket is no longer listed after this many sleeps without an event.
constexpr unsigned most_idle_sleeps = 16;
constexpr unsigned most_failures = 16;
// Other descriptors of the program wait at most this long while streams are ready.
constexpr std::chrono::microseconds question_interval{100};
// What a look can tell, and what the kernel reports at the end of a connection only.
constexpr std::uint32_t known_events =
    EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLERR | EPOLLHUP;

constinit std::array<std::atomic<StreamSet*>, most_sets> sets{};

}  // namespace

StreamSet* StreamSet::of(int epoll) {
  const auto index = static_cast<std::size_t>(epoll);
  return epoll >= 0 && index < sets.size() ? sets[index].load(std::memory_order_acquire) : nullptr;
}

void StreamSet::for_each_in(unsigned first, unsigned last, void (*visit)(int)) {
  for (std::size_t i = first; i < sets.size() && i <= last; ++i) {
    if (sets[i]) visit(static_cast<int>(i));
  }
}

// --- epoll_ctl(2) --------------------------------------------------------------------------------

void StreamSet::note_added(int epoll, int fd, const std::shared_ptr<Socket>& socket,
                           const epoll_event& event) {
  const auto index = static_cast<std::size_t>(epoll);
  if (epoll < 0 || index >= sets.size() || (event.events & ~known_events) != 0) return;
  auto stream = socket->listable_stream();
  if (!stream) return;
  StreamSet* set = of(epoll);
  if (!set) {
    auto* const made = new StreamSet(epoll);
    if (sets[index].compare_exchange_strong(set, made)) {
      set = made;
    } else {
      delete made;
    }
  }
  const std::lock_guard lock(set->mutex_);
  if (set->is_kernels_) return;
  StreamSet* none = nullptr;
  if (!socket->member().set.compare_exchange_strong(none, set)) return;
  socket->member().fd = fd;
  auto member = std::make_unique<Member>();
  member->socket = socket;
  member->stream = std::move(stream);
  member->fd = fd;
  member->wanted = member->in_kernel = {true, event};
  if (set->sleepers_ == 0) set->list(*member);
  set->members_[fd] = std::move(member);
}

std::optional<int> StreamSet::change(int operation, int fd, const epoll_event* event) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(fd);
  if (found == members_.end()) return std::nullopt;
  Member& member = *found->second;
  const bool adds = operation == EPOLL_CTL_ADD;
  if (!adds && operation != EPOLL_CTL_MOD && operation != EPOLL_CTL_DEL) return EINVAL;
  if (operation != EPOLL_CTL_DEL && !event) return EFAULT;
  if (adds == member.wanted.present) return adds ? EEXIST : ENOENT;
  if (operation != EPOLL_CTL_DEL && (event->events & ~known_events) != 0) {
    drop(member);
    return std::nullopt;
  }
  member.wanted = operation == EPOLL_CTL_DEL ? Interest{} : Interest{true, *event};
  if (sleepers_ == 0 && !member.listed) list(member);
  if (!member.listed || sleepers_ > 0) apply(member);
  return 0;
}

// Tells the kernel what the program wants. A failure, for which there is no call that could return
// it, is repeated before the next sleep.
void StreamSet::apply(Member& member) const {
  const Interest& wanted = member.wanted;
  Interest& known = member.in_kernel;
  if (!wanted.present && !known.present) return;
  if (wanted.present && known.present && wanted.event.events == known.event.events &&
      wanted.event.data.u64 == known.event.data.u64) {
    return;
  }
  const int operation = !wanted.present ? EPOLL_CTL_DEL
                        : known.present ? EPOLL_CTL_MOD
                                        : EPOLL_CTL_ADD;
  epoll_event event = wanted.event;
  if (next::epoll_ctl(epoll_, operation, member.fd, &event) == 0) known = wanted;
}

// --- Listing -------------------------------------------------------------------------------------

// Lists a member only if the program calls epoll_wait(2) of libc. A program that makes the system
// call itself would not look at the list.
void StreamSet::list(Member& member) {
  if (!is_waited_for_ || member.listed || listed_.size() == most_listed) return;
  listed_.push_back(&member);
  member.listed = true;
  member.idle_sleeps = 0;
  member.socket->member().listed = true;
}

void StreamSet::unlist(Member& member) {
  if (!std::exchange(member.listed, false)) return;
  std::erase(listed_, &member);
}

// Returns whether the peer rings for the next bytes. An Error means that the device has failed.
bool StreamSet::show_to_kernel(Member& member) {
  member.socket->member().listed = false;
  try {
    return member.stream->report_again();
  } catch (const std::exception&) {
    return false;
  }
}

// Destroys the member.
void StreamSet::drop(Member& member) {
  unlist(member);
  (void)show_to_kernel(member);
  apply(member);
  member.socket->member().set = nullptr;
  members_.erase(member.fd);
}

StreamSet::Member* StreamSet::member_of(const Socket& socket) {
  const auto found = members_.find(socket.member().fd);
  return found != members_.end() && found->second->socket.get() == &socket ? found->second.get()
                                                                           : nullptr;
}

void StreamSet::note_use(Socket& socket) {
  const std::lock_guard lock(mutex_);
  if (sleepers_ > 0) return;
  if (Member* const member = member_of(socket)) list(*member);
}

void StreamSet::leave(Socket& socket) {
  const std::lock_guard lock(mutex_);
  if (Member* const member = member_of(socket)) drop(*member);
}

// The kernel removes a file from its sets when it is closed.
void StreamSet::remove(Socket& socket) {
  std::unique_ptr<Member> removed;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  Member* const member = member_of(socket);
  if (!member) return;
  unlist(*member);
  socket.member().set = nullptr;
  const auto at = members_.find(member->fd);
  removed = std::move(at->second);
  members_.erase(at);
}

void StreamSet::leave_all(bool closed) {
  std::vector<std::unique_ptr<Member>> removed;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  listed_.clear();
  for (auto& [fd, member] : members_) {
    (void)show_to_kernel(*member);
    if (!closed) apply(*member);
    member->socket->member().set = nullptr;
    removed.push_back(std::move(member));
  }
  members_.clear();
  is_kernels_ = !closed;
  is_waited_for_ = false;
}

void StreamSet::forget_all() {
  for (auto& set : sets) set = nullptr;
}

void StreamSet::leave_every_set() {
  for (auto& each : sets) {
    if (StreamSet* const set = each) set->leave_all(false);
  }
}

// --- epoll_wait(2) -------------------------------------------------------------------------------

bool StreamSet::asks_kernel() {
  const std::lock_guard lock(mutex_);
  is_waited_for_ = true;
  return listed_.empty() || Clock::now() - asked_ >= question_interval;
}

// What the kernel reports of a listed socket may be what the program has changed since. Then it
// learns the change, and the event is left out. If that was the event of another descriptor with
// the same data, it comes again with the next question.
int StreamSet::ask_kernel(epoll_event* events, int most, const sigset_t* mask) {
  const int found = mask ? next::epoll_pwait(epoll_, events, most, 0, mask)
                         : next::epoll_wait(epoll_, events, most, 0);
  const std::lock_guard lock(mutex_);
  asked_ = Clock::now();
  if (found <= 0 || listed_.empty()) return found;
  const auto is_unwanted = [&](const epoll_event& event) {
    bool unwanted = false;
    for (Member* const member : listed_) {
      const Interest& known = member->in_kernel;
      const Interest& wanted = member->wanted;
      if (!known.present || known.event.data.u64 != event.data.u64) continue;
      const bool same = wanted.present && wanted.event.data.u64 == event.data.u64;
      if (same &&
          (event.events & known_events & ~wanted.event.events & ~(EPOLLERR | EPOLLHUP)) == 0)
        continue;
      apply(*member);
      unwanted = true;
    }
    return unwanted;
  };
  return static_cast<int>(std::remove_if(events, events + found, is_unwanted) - events);
}

std::uint32_t StreamSet::ready_events(const Member& member) {
  if (!member.wanted.present) return 0;
  return member.socket->member().ready & member.wanted.event.events & (EPOLLIN | EPOLLOUT);
}

bool StreamSet::kernel_may_show(const Member& member) {
  const Interest& known = member.in_kernel;
  return known.present && ((known.event.events & EPOLLOUT) != 0 ||
                           ((known.event.events & EPOLLIN) != 0 && member.socket->shows_bytes()));
}

// Members that leave are few, so they are looked for only where there is one.
void StreamSet::drop_those_that_are_over() {
  for (std::size_t i = 0; i < listed_.size();) {
    Member& member = *listed_[i];
    if (member.socket->member().ready & SetMember::over) {
      drop(member);  // takes it out of listed_
    } else {
      ++i;
    }
  }
  asked_ = {};  // the kernel has an event for each of them
}

int StreamSet::look(epoll_event* events, int found, int most) {
  const std::lock_guard lock(mutex_);
  const std::span reported(events, static_cast<std::size_t>(found));
  bool some_over = false;
  std::size_t looked = 0;
  for (; looked < listed_.size() && found < most; ++looked) {
    Member& member = *listed_[(first_ + looked) % listed_.size()];
    if (!member.wanted.present) continue;
    const auto& ready = member.socket->member().ready;
    if ((member.wanted.event.events & (EPOLLIN | EPOLLOUT) & ~ready) != 0) member.stream->look();
    if (ready & SetMember::over) {
      some_over = true;
      continue;
    }
    const std::uint32_t now = ready_events(member);
    const auto has_same_data = [&](const epoll_event& event) {
      return event.data.u64 == member.wanted.event.data.u64;
    };
    if (now == 0) continue;
    // The kernel may have reported it. Several descriptors may have the same data.
    if (std::ranges::any_of(reported, has_same_data) && kernel_may_show(member)) continue;
    member.idle_sleeps = 0;
    events[found].events = now;
    events[found].data = member.wanted.event.data;
    ++found;
  }
  // The next look begins with those that have had no turn.
  first_ = listed_.empty() ? 0 : (first_ + looked) % listed_.size();
  if (some_over) drop_those_that_are_over();
  return found;
}

int StreamSet::spin(epoll_event* events, int most) {
  {
    const std::lock_guard lock(mutex_);
    if (listed_.empty() || !spin_rule_.allows()) return 0;
  }
  constexpr int looks = 4;
  int found = 0;
  const auto outcome = look_for_a_moment([&] {
    for (int i = 0; i < looks && found == 0; ++i) {
      pause_processor();
      found = look(events, 0, most);
    }
    return found > 0;
  });
  const std::lock_guard lock(mutex_);
  spin_rule_.learn(outcome);
  return found;
}

bool StreamSet::begin_sleep() noexcept {
  const std::lock_guard lock(mutex_);
  bool some_ready = false;
  for (std::size_t i = 0; i < listed_.size();) {
    Member& member = *listed_[i];
    const bool rings = show_to_kernel(member);
    if (member.socket->member().ready & SetMember::over) {
      drop(member);
      continue;
    }
    some_ready = some_ready || ready_events(member) != 0;
    member.failures = rings ? 0 : member.failures + 1;
    if (member.failures > most_failures) {
      drop(member);
    } else if (!rings || ++member.idle_sleeps > most_idle_sleeps) {
      apply(member);
      unlist(member);
    } else {
      ++i;
    }
  }
  if (some_ready) {
    for (Member* const member : listed_) member->socket->member().listed = true;
    return false;
  }
  for (Member* const member : listed_) apply(*member);
  ++sleepers_;
  return true;
}

void StreamSet::end_sleep() {
  const std::lock_guard lock(mutex_);
  if (--sleepers_ > 0) return;
  for (Member* const member : listed_) member->socket->member().listed = true;
}

}  // namespace weft::interpose
