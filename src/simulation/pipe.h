// One direction of a simulated TCP connection: bytes that are on their way, or wait to be read.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace weft::simulation {

// Virtual time in nanoseconds.
using Time = std::uint64_t;
inline constexpr Time never = UINT64_MAX;

class Pipe {
 public:
  // What the sender may have under way, as the window of TCP limits it.
  static constexpr std::size_t window_bytes = std::size_t{256} * 1024;

  // --- The sending end

  [[nodiscard]] std::size_t room() const { return window_bytes - static_cast<std::size_t>(held()); }
  // Nothing arrives before this.
  void begin(Time due) { last_due_ = due; }
  // Appends the first `count` bytes of `pieces`, at most room(). They arrive at `due`, and not
  // before what was sent earlier.
  void send(std::span<const iovec> pieces, std::size_t count, Time due);
  // The sender sends no more: the end arrives behind the bytes.
  void end(Time due);
  [[nodiscard]] bool ending() const { return end_due_.has_value(); }
  // When the last of it arrives: the earliest time for what follows.
  [[nodiscard]] Time last_due() const { return last_due_; }
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  // Bytes that the receiver's TCP has by then, and so has acknowledged.
  [[nodiscard]] std::uint64_t arrived(Time now) const;

  // --- The receiving end

  [[nodiscard]] std::size_t readable(Time now) const {
    return static_cast<std::size_t>(arrived(now) - read_);
  }
  // The same as readable() > 0, at any time from now on.
  [[nodiscard]] bool has_bytes(Time then) const;
  // Fills `pieces`; returns the number of bytes.
  std::size_t receive(std::span<const iovec> pieces, Time now);
  // Everything was read, and the end has arrived.
  [[nodiscard]] bool ended(Time now) const;
  // The receiver has closed its socket: nothing arrives from then on.
  void close(Time now);
  [[nodiscard]] bool closed() const { return closed_.has_value(); }

  // --- The network

  // What is still on its way stays there, until release().
  void hold(Time now);
  // It arrives from `from` on.
  void release(Time from);

 private:
  // The bytes up to a position arrive together.
  struct Mark {
    Time due;
    std::uint64_t end;
  };

  [[nodiscard]] std::uint64_t held() const { return sent_ - read_; }
  void copy_in(const std::byte* from, std::size_t count);
  void copy_out(std::byte* to, std::size_t count);
  void make_room(std::size_t count);

  std::vector<std::byte> ring_;  // a power of two; the byte at position p is at p modulo its size
  std::deque<Mark> marks_;       // of what was not seen to arrive by receive()
  std::uint64_t sent_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t seen_ = 0;  // has arrived, and has no mark any more
  Time last_due_ = 0;
  std::optional<Time> end_due_;
  std::optional<Time> closed_;
};

}  // namespace weft::simulation
