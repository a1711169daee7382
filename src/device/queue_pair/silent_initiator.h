// Watches for an initiator that has connected by rdma_cm without asking for a ready-to-receive
// message, and then sends nothing: MPA forbids the responder to send first (RFC 5044 §7.1), so work
// that the program posts here would wait without a word.
//
// Not thread safe: the queue pair's lock covers it.
#pragma once

#include <cstdint>

namespace weft::device {

class SilentInitiator {
 public:
  static constexpr std::uint64_t never_ns = UINT64_MAX;

  enum class Step : std::uint8_t { none, report, speak };

  // `possible`: the peer has connected by rdma_cm and has asked for no ready-to-receive message.
  explicit SilentInitiator(bool possible) : possible_(possible) {}
  [[nodiscard]] bool possible() const { return possible_; }
  // Starts to wait for the initiator's first FPDU. `speaks`: this side may send without it after
  // limits::responder_first_ns (Settings::responder_first).
  void watch(std::uint64_t now_ns, bool speaks);
  // The FPDU has arrived, or the stream has ended.
  void stop() { next_ns_ = never_ns; }
  // When on_time() should be called; never_ns if not at all.
  [[nodiscard]] std::uint64_t deadline_ns() const { return next_ns_; }
  // What to do now. `work_waits`: requests are posted that cannot be sent.
  [[nodiscard]] Step on_time(std::uint64_t now_ns, bool work_waits);
  // Prints on stderr why nothing is sent to the peer of `socket`, and what can be done.
  static void report(int socket);

 private:
  const bool possible_;
  std::uint64_t next_ns_ = never_ns;
  bool speaks_ = false;
};

}  // namespace weft::device
