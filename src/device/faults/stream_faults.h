// What the rules of faults do to one TCP connection that carries requests: when it happens, and the
// state that the connection is in since then.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "faults/plan.h"

namespace weft::device {

// Used with the lock of the queue pair held. Bytes count in both directions together.
class StreamFaults {
 public:
  enum class State : std::uint8_t {
    open,
    silent,  // nothing is sent or received
    closed,  // by FIN
    reset,
  };
  static constexpr std::uint64_t never_ns = UINT64_MAX;

  // `plan` must outlive this object. `begin`: of the connection.
  StreamFaults(faults::Plan& plan, const faults::Occurrence& begin,
               std::vector<faults::Plan::Scheduled> scheduled)
      : plan_(plan), begin_(begin), scheduled_(std::move(scheduled)) {}

  // Happens at once, before anything else is sent. The plan has counted it.
  void add(const faults::Action& action) { at_once_.push_back(action); }
  // Lets everything happen that is due.
  void on_time(std::uint64_t now_ns);

  [[nodiscard]] State state() const { return state_; }
  // The connection is silent, and does not resume by itself.
  [[nodiscard]] bool vanished() const { return state_ == State::silent && until_ns_ == never_ns; }
  // How long it has been silent; 0: it is not.
  [[nodiscard]] std::uint64_t silent_ns(std::uint64_t now_ns) const {
    return state_ == State::silent ? now_ns - since_ns_ : 0;
  }
  // A message has arrived: whether it may take a receive. After false it asks again.
  [[nodiscard]] bool takes_message(std::uint64_t now_ns);
  // The time is over in which messages found no receive: they are to ask again.
  [[nodiscard]] bool ready_again(std::uint64_t now_ns) const {
    return ready_ns_ != 0 && ready_ns_ <= now_ns;
  }
  // The Terminate to send, once: see faults::Failure.
  [[nodiscard]] std::optional<std::int64_t> take_terminate();
  // When on_time() is to be called again; nothing where that has been returned before.
  [[nodiscard]] std::optional<std::uint64_t> new_alarm_ns();

  // The part of `pieces` that may be sent, or received, before the next fault. It is good until the
  // next call. `sending`: a bit of it may be changed, in a copy.
  [[nodiscard]] std::span<const iovec> shape(std::span<const iovec> pieces, bool sending);
  // So much of the last part was sent or received.
  void moved(std::size_t bytes);

 private:
  void apply(const faults::Action& action, std::uint64_t now_ns);
  void flip_last_bit();

  faults::Plan& plan_;
  const faults::Occurrence begin_;
  std::vector<faults::Plan::Scheduled> scheduled_;  // that is still to happen
  std::vector<faults::Action> at_once_;
  std::uint64_t bytes_ = 0;
  State state_ = State::open;
  std::uint64_t since_ns_ = 0;  // silent
  std::uint64_t until_ns_ = 0;  // silent
  std::uint64_t ready_ns_ = 0;  // until then no message finds a receive; 0: there is no such time
  std::uint64_t alarm_ns_ = never_ns;
  std::optional<std::int64_t> terminate_;
  bool flips_ = false;          // a bit of what is sent next
  std::size_t flipped_at_ = 0;  // bytes of the last part up to the flipped bit; 0: none
  std::vector<iovec> part_;
  std::vector<unsigned char> copy_;
};

}  // namespace weft::device
