// Keeps track of which requests the peer is known to have carried out, and of when to ask it.
//
// TCP's acknowledgement only shows that the peer's kernel has the bytes. RFC 5040 §5.5 has more: a
// responder carries out the messages of a stream in order, so the response to an RDMA Read or an
// atomic proves that every message sent before it was placed. Where the application sends no such
// request itself, the requester adds a zero-length RDMA Read, which names no memory (RFC 5040
// §5.2.1): a *probe*.
//
// One probe covers everything before it, so at most one is outstanding. Probes are sent when
// nothing else is to be sent, and within a long batch each time that unproven_limit_bytes have been
// sent, so that the first requests of the batch complete before the last one is sent.
//
// A program that waits for an answer to each message would send a probe with each. A Weft peer can
// be asked to prove everything by itself instead, by the control word `placed`, which it sends with
// its own next message (see wire/control_word.h). That is agreed on when probes have proven few
// requests for a while, and ends when many wait for a proof: there one probe for many costs less
// than a word for each.
//
// Requests are named by their index in the SendQueue. All values only grow.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::iwarp {

class Proofs {
 public:
  // Bytes that may be sent without a proof before a probe is sent between two requests.
  static constexpr std::uint64_t unproven_limit_bytes = 256 * 1024;
  // How many probes in a row have proven few requests before the peer is asked to prove all, and
  // how many requests and bytes are few.
  static constexpr std::uint32_t small_probes = 16;
  static constexpr std::uint64_t few_requests = 4;
  static constexpr std::uint64_t few_bytes = 64 * 1024;
  // Of what is proven unasked no more than this may wait.
  static constexpr std::uint64_t most_waiting = 16;

  // The peer has carried out every request before `index`.
  void prove(std::uint64_t index) { proven_ = std::max(proven_, index); }
  [[nodiscard]] std::uint64_t proven() const { return proven_; }
  [[nodiscard]] bool covers(std::uint64_t index) const { return index < proven_; }

  // Completions, or room at the peer, depend on a proof of every request before `index`.
  void want(std::uint64_t index) { wanted_ = std::max(wanted_, index); }
  // A proof is wanted that has not arrived.
  [[nodiscard]] bool lacking() const { return wanted_ > proven_; }
  // Whether the response to a request that was sent at `index` leaves a wanted proof open: requests
  // behind it need another one.
  [[nodiscard]] bool wanted_behind(std::uint64_t index) const { return index < wanted_; }

  // A message with `bytes` of payload was sent that has no response.
  void count_unproven(std::uint64_t bytes) { unproven_bytes_ += bytes; }
  // A read or atomic of the application was sent: its response will prove everything before it.
  void read_sent() { unproven_bytes_ = 0; }
  // A probe was sent, until probe_answered(). At most one at a time: see probe_useful().
  void probe_sent() {
    const bool few = wanted_ - proven_ <= few_requests && unproven_bytes_ <= few_bytes;
    small_probes_ = few ? small_probes_ + 1 : 0;
    unproven_bytes_ = 0;
    probe_outstanding_ = true;
  }
  void probe_answered() { probe_outstanding_ = false; }

  // A probe would add something: a proof is wanted and does not come by itself, and no other probe
  // is under way.
  [[nodiscard]] bool probe_useful() const {
    return lacking() && !probe_outstanding_ && !come_unasked_;
  }
  // A probe should be sent before the next request, even though there are more to send.
  [[nodiscard]] bool overdue() const {
    return unproven_bytes_ >= unproven_limit_bytes && lacking();
  }

  // Once, when the peer should be asked to prove all.
  [[nodiscard]] bool should_agree() const { return small_probes_ == small_probes; }
  // The peer proves every request that it has not proven yet.
  void agreed() { come_unasked_ = true; }
  // Whether it should stop that, with a request of `bytes` sent just now, before `next`. Probes
  // are sent again from then on.
  [[nodiscard]] bool should_ask_again(std::uint64_t bytes, std::uint64_t next) const {
    return come_unasked_ && (bytes > few_bytes || next - proven_ > most_waiting);
  }
  void ask_again() {
    come_unasked_ = false;
    small_probes_ = 0;
  }

 private:
  std::uint64_t proven_ = 0;
  std::uint64_t wanted_ = 0;
  std::uint64_t unproven_bytes_ = 0;  // sent since the last read or atomic
  bool probe_outstanding_ = false;
  std::uint32_t small_probes_ = 0;  // in a row
  bool come_unasked_ = false;
};

}  // namespace weft::iwarp
