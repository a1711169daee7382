#include "cm/event_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/identifier.h"
#include "cm/pair_wait.h"
#include "device/local/process_pair.h"

namespace weft::cm {

// The members `conn` and `ud` of an event form a union, and both begin with the private data and
// its length (rdma_cma.h). So this function serves datagrams, too. The array is zeroed from the
// start, so the padding up to `least` needs no work.
void Event::set_private_data(Bytes bytes, std::size_t least) {
  if (bytes.empty() && least == 0) return;
  // The length has eight bits.
  const std::size_t given = std::min<std::size_t>(bytes.size(), UINT8_MAX);
  const std::size_t size = std::max(given, least);
  std::ranges::copy(bytes.first(given), private_data.begin());
  event.param.conn.private_data = private_data.data();
  event.param.conn.private_data_len = static_cast<std::uint8_t>(size);
}

Channel::Channel(std::shared_ptr<Registry> registry) : registry_(std::move(registry)) {
  handle_->channel.fd = events_.fd();
  handle_->owner = this;
}

Channel::~Channel() {
  handle_->owner = nullptr;
  Handle::keep_for_a_while(std::move(handle_));
}

// There is no lock, because another thread could hold it at a fork.
void Channel::Handle::keep_for_a_while(std::unique_ptr<Handle> handle) {
  constexpr std::size_t kept = 16;
  static std::array<std::atomic<Handle*>, kept> last{};
  static std::atomic<std::size_t> next{0};
  delete last[next++ % kept].exchange(handle.release());
}

std::shared_ptr<Channel> Channel::create(std::shared_ptr<Registry> registry) {
  auto made = std::make_shared<Channel>(std::move(registry));
  if (made->handle()->fd >= 0) return made;
  errno = EMFILE;
  return nullptr;
}

// Either this thread sees that the channel is destroyed, or retire() sees that the thread reads.
Channel* Channel::begin_reading(rdma_event_channel* channel) {
  Handle* const handle = Handle::of(channel);
  // The thread is stored before it is counted, because is_being_read() looks at the count first.
  handle->last_reader = device::sys::thread_id();
  ++handle->readers;
  Channel* const read = handle->owner;
  if (!read) --handle->readers;
  return read;
}

// A thread that was cancelled stays in the count, so the count alone does not show that a thread
// waits.
bool Channel::is_being_read() const {
  return handle_->readers > 0 && device::sys::is_alive(handle_->last_reader);
}

// Waits for at most looks · pause_us, as there may be no such thread. The caller itself may be the
// last reader, and a program that uses a non-blocking descriptor has no thread that waits.
void Channel::await_reader() const {
  constexpr unsigned looks = 500;
  constexpr unsigned pause_us = 100;
  const int reader = handle_->last_reader;
  if (reader == 0 || reader == device::sys::thread_id()) return;
  if (device::sys::nonblocking(handle_->channel.fd)) return;
  for (unsigned i = 0; i < looks && handle_->readers == 0 && device::sys::is_alive(reader); ++i) {
    device::sys::sleep_us(pause_us);
  }
}

// Either this thread sees the one that waits, or that one sees the event before it sleeps.
void Channel::push(std::unique_ptr<Event> event) {
  events_.push(std::move(event));
  if (!waited_.load(std::memory_order_seq_cst) || PairWait::is_at(*this)) return;
  const std::lock_guard lock(waited_mutex_);
  if (device::ProcessPair* const pair = waited_) pair->end_sleep();
}

bool Channel::begin_pair_wait(device::ProcessPair& pair) {
  const std::lock_guard lock(waited_mutex_);
  if (waited_) return false;
  waited_ = &pair;
  return true;
}

void Channel::end_pair_wait() {
  const std::lock_guard lock(waited_mutex_);
  waited_ = nullptr;
}

std::unique_ptr<Event> Channel::take() {
  std::unique_ptr<Event> taken;
  events_.take(taken, [](const std::unique_ptr<Event>& event) { event->owner->count_delivered(); });
  return taken;
}

std::vector<std::unique_ptr<Event>> Channel::withdraw(const Identifier* owner) {
  return events_.withdraw(
      [owner](const std::unique_ptr<Event>& event) { return event->owner.get() == owner; });
}

}  // namespace weft::cm
