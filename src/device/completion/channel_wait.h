// A thread that waits for an event of a completion channel (ibv_get_cq_event(3)) moves the data
// that it waits for itself.
//
// Otherwise each event would wake two threads: the progress thread, which takes the data, and the
// one that waits. And where the event comes soon, as in programs that ask and answer, the thread
// does not sleep at all: it drives the queue pairs for a moment first (SpinRule). Then it sleeps in
// place of the progress thread (WaitLeader), unless another thread of the program does so already,
// or it could not tell which signals end a read(2): see SignalHandlers.
//
// The thread may be cancelled while it sleeps, and its frames have no destructors. So its wait
// belongs to the thread, and ends with it.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/signal_handlers.h"
#include "base/spin_rule.h"
#include "base/wait_leader.h"
#include "device/completion/completion_channel.h"
#include "device/engine.h"

namespace weft::device {

class ChannelWait {
 public:
  ChannelWait() = default;
  ~ChannelWait() { end(); }
  ChannelWait(const ChannelWait&) = delete;
  ChannelWait& operator=(const ChannelWait&) = delete;

  // Of the calling thread. False: wait by the descriptor of the channel.
  [[nodiscard]] static bool begin(CompletionChannel& channel, Engine& engine);
  // Takes a token from the channel, as sys::await_token() does. Ends the wait.
  [[nodiscard]] static int await();

 private:
  enum class Found : std::uint8_t { token, signal, nothing };

  [[nodiscard]] static ChannelWait& of_thread();
  // Ends the wait, unless there is nothing.
  [[nodiscard]] static Found look_or_end() noexcept;
  static void end_of_thread() noexcept;

  [[nodiscard]] bool leads() const { return waiter_ && waiter_->leads(); }
  void begin_at(CompletionChannel& channel, Engine& engine);
  [[nodiscard]] bool look();
  [[nodiscard]] bool look_briefly();
  [[nodiscard]] const SignalHandlers& learn_handlers();
  [[nodiscard]] bool goes_on_after_signal() const;
  void serve();
  void end();

  SignalHandlers handlers_;           // as they were at handlers_ns_
  std::uint64_t handlers_ns_ = 0;     // of sys::now_ns()
  SpinRule rule_{2};                  // whether to look
  SpinRule lead_rule_{2};             // whether to lead
  bool looked_ = false;               // in this wait
  CompletionChannel::Owned channel_;  // null: this thread does not wait
  Engine* engine_ = nullptr;
  std::optional<WaitLeader::Waiter> waiter_;
  // For a thread that leads: the descriptors of channel and engine, and until when it may sleep.
  std::array<pollfd, 2> entries_{};
  std::optional<std::uint64_t> until_ns_;
};

}  // namespace weft::device
