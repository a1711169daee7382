// A thread that waits for an event of the connection manager (rdma_get_cm_event(3)) takes itself
// what comes from the process of which it expects the event: the one that was connected to last.
//
// Otherwise each event would wake two threads: the progress thread, which makes the event, and the
// one that waits. And where the next event comes soon, as while connections are made one after the
// other, the thread does not sleep at all: it looks at the memory of the pair of processes for a
// moment first (SpinRule). It then sleeps on a word of that memory (futex(2)), so that the peer
// wakes it directly. Everything else that makes an event, on any thread, wakes it by
// Channel::push().
//
// The thread may be cancelled while it sleeps, and its frames have no destructors. So its wait
// belongs to the thread, and ends with it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/spin_rule.h"
#include "cm/event_channel.h"
#include "device/context.h"
#include "device/local/process_pair.h"

namespace weft::cm {

class PairWait {
 public:
  PairWait() = default;
  ~PairWait() { end(); }
  PairWait(const PairWait&) = delete;
  PairWait& operator=(const PairWait&) = delete;

  // Of the calling thread. False: wait by the descriptor of the channel.
  [[nodiscard]] static bool begin(Channel& channel, device::Context& context) noexcept;
  // Takes a token from the channel, as device::sys::await_token() does. Ends the wait.
  [[nodiscard]] static int await();
  // The calling thread is the one that waits there. It runs now, so nothing has to wake it.
  [[nodiscard]] static bool is_at(const Channel& channel) noexcept;

 private:
  enum class Found : std::uint8_t { token, signal, nothing };

  [[nodiscard]] static PairWait& of_thread();
  // Ends the wait, unless there is nothing.
  [[nodiscard]] static Found look_or_end() noexcept;
  static void end_of_thread() noexcept;

  [[nodiscard]] bool begin_at(Channel& channel, device::Context& context);
  [[nodiscard]] bool look();
  [[nodiscard]] bool look_briefly();
  [[nodiscard]] bool take_token();
  void end();

  SpinRule rule_{2};     // such a wait is rare, and sleeping costs both processes
  bool looked_ = false;  // in this wait
  device::Engine* engine_ = nullptr;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<device::ProcessPair> pair_;  // null: this thread does not wait
};

}  // namespace weft::cm
