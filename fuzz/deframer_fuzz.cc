// A whole iWARP connection that receives arbitrary bytes, cut into reads at arbitrary places. The
// target checks that the outcome does not depend on the cuts, that memory is not touched unless it
// was granted, and that the connection sends well-formed FPDUs.
//
// The first byte of the input selects the options, the second the cuts, the rest is the stream.
// CRCs are corrected unless an option forbids it, because the connection drops mutated FPDUs
// without.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "fuzz/fuzz.h"
#include "iwarp/connection.h"
#include "wire/mpa.h"

namespace weft::fuzz {
namespace {

using iwarp::Connection;
using iwarp::Fault;
using iwarp::Memory;

constexpr unsigned crc_option = 1;
constexpr unsigned strict_option = 2;
constexpr unsigned initiator_option = 4;
constexpr unsigned raw_crc_option = 8;
constexpr unsigned rtr_send_option = 16;
constexpr unsigned weft_peer_option = 32;  // the peer may send control words, and gets some
constexpr unsigned hold_option = 64;       // Sends wait for receives, which are posted at the end
constexpr unsigned unreliable_option = 128;

// Not among the grants below: no application has this STag.
constexpr std::uint32_t control_stag = 0x600;
constexpr std::size_t hold_bytes = 3000;
constexpr iwarp::PeerFeatures weft_peer{
    .send_immediate = true, .control_stag = 0x700, .hold_bytes = 100'000};

struct Grant {
  std::uint32_t stag;
  std::size_t begin, size;  // in the host's memory; the address on the wire is the same number
  bool remote_write, remote_read, remote_atomic, local_write;
};

// One region of each kind, with memory between them that is not registered.
constexpr std::array<Grant, 5> grants{{{0x100, 4096, 65'536, true, true, true, true},
                                       {0x200, 80'000, 4096, false, true, false, false},
                                       {0x300, 90'000, 64, true, false, false, true},
                                       {0x400, 100'000, 100, false, false, false, true},
                                       {0x500, 110'000, 24, false, false, true, true}}};
constexpr std::size_t memory_bytes = 120'000;

class Host final : public iwarp::Host {
 public:
  explicit Host(std::size_t receives)
      : memory_(memory_bytes, std::byte{0xA5}), receives_posted_(receives) {}

  Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length,
                       iwarp::RemoteRight right) override {
    require(length > 0 && !ended_);
    const Grant* grant = find(stag);
    if (!grant) return {nullptr, Fault::invalid_stag};
    const bool granted = right == iwarp::RemoteRight::write  ? grant->remote_write
                         : right == iwarp::RemoteRight::read ? grant->remote_read
                                                             : grant->remote_atomic;
    if (!granted) return {nullptr, Fault::access};
    return locate(*grant, offset, length);
  }
  Memory local_memory(const iwarp::LocalSlice& slice, bool for_writing) override {
    const Grant* grant = find(slice.lkey);
    if (!grant) return {nullptr, Fault::invalid_stag};
    if (for_writing && !grant->local_write) return {nullptr, Fault::access};
    return locate(*grant, slice.address, slice.length_bytes);
  }
  bool next_receive(iwarp::ReceiveRequest& request) override {
    // Enough for anything; too small; in two pieces; not allowed.
    static const std::array<std::vector<iwarp::LocalSlice>, 6> posted{{
        {{4096, 65'536, 0x100}},
        {{100'000, 10, 0x400}, {100'020, 80, 0x400}},
        {},
        {{90'000, 64, 0x300}},
        {{4096, 30'000, 0x100}, {50'000, 10'000, 0x100}},
        {{80'000, 4096, 0x200}},
    }};
    if (taken_ == receives_posted_) return false;
    request.wr_id = taken_;
    request.slices = posted[taken_++ % posted.size()];
    return true;
  }
  void post_receives(std::size_t count) { receives_posted_ += count; }
  bool invalidate(std::uint32_t stag) override {
    if (!find(stag)) return false;
    invalidated_.push_back(stag);
    note("invalidate", stag);
    return true;
  }
  void complete_send(const iwarp::SendCompletion& completion) override {
    require(!ended_ && completion.wr_id == sends_++);
    note("send", static_cast<std::uint64_t>(completion.status));
  }
  void complete_receive(const iwarp::ReceiveCompletion& completion) override {
    require(!ended_ && completion.wr_id == receives_++ && receives_ <= taken_);
    note("receive", static_cast<std::uint64_t>(completion.status));
    note("length", completion.length_bytes);
    note("immediate", completion.immediate_be);
  }
  void on_peer_ready() override { note("ready", 0); }
  void on_end(iwarp::EndReason reason) override {
    require(!ended_);
    ended_ = true;
    note("end", static_cast<std::uint64_t>(reason));
  }

  // Requires that memory outside the grants, and memory that may only be read, has not changed.
  void check_untouched() const {
    std::size_t at = 0;
    for (const auto& grant : grants) {
      if (!grant.local_write) continue;
      check_untouched(at, grant.begin);
      at = grant.begin + grant.size;
    }
    check_untouched(at, memory_.size());
  }

  std::string events;
  [[nodiscard]] const std::vector<std::byte>& memory() const { return memory_; }

 private:
  [[nodiscard]] const Grant* find(std::uint32_t stag) const {
    if (std::ranges::find(invalidated_, stag) != invalidated_.end()) return nullptr;
    const auto* found = std::ranges::find(grants, stag, &Grant::stag);
    return found != grants.end() ? found : nullptr;
  }
  Memory locate(const Grant& grant, std::uint64_t offset, std::uint64_t length) {
    if (offset + length < offset) return {nullptr, Fault::wrap};
    if (offset < grant.begin || offset + length > grant.begin + grant.size) {
      return {nullptr, Fault::bounds};
    }
    return {memory_.data() + offset, Fault::none};
  }
  void check_untouched(std::size_t begin, std::size_t end) const {
    static const std::vector<std::byte> fresh(memory_bytes, std::byte{0xA5});
    require(std::memcmp(&memory_[begin], fresh.data(), end - begin) == 0);
  }
  void note(const char* what, std::uint64_t value) {
    events += std::string(what) + " " + std::to_string(value) + "\n";
  }

  std::vector<std::byte> memory_;
  std::vector<std::uint32_t> invalidated_;
  std::size_t receives_posted_;
  std::size_t taken_ = 0;
  std::uint64_t receives_ = 0;
  std::uint64_t sends_ = 0;
  bool ended_ = false;
};

struct Outcome {
  std::string events;
  std::vector<std::byte> memory;
  std::vector<std::byte> sent;

  bool operator==(const Outcome&) const = default;
};

// The sizes of reads: one, all at once, or drawn from a generator.
class Sizes {
 public:
  explicit Sizes(unsigned choice) : choice_(choice), state_(choice * 2'654'435'761U + 1) {}
  std::size_t next() {
    if (choice_ == 0) return SIZE_MAX;
    if (choice_ == 1) return 1;
    state_ = state_ * 1'664'525U + 1'013'904'223U;
    return 1 + (state_ >> 8) % (1U << choice_ % 15);
  }

 private:
  unsigned choice_;
  std::uint32_t state_;
};

// What an initiator has under way: answers to the first two, and a proof of the third, may come.
void post_requests(Connection& connection) {
  using iwarp::Operation;
  const iwarp::LocalSlice slices[] = {{5000, 40'000, 0x100}, {90'000, 10, 0x300}};
  const iwarp::LocalSlice word[] = {{110'000, 8, 0x500}};
  const auto post = [&](std::uint64_t wr_id, Operation operation,
                        std::span<const iwarp::LocalSlice> memory) {
    require(
        connection.post({.wr_id = wr_id, .operation = operation, .slices = memory, .rkey = 1}) ==
        iwarp::Requester::Posted::ok);
  };
  post(0, Operation::read, slices);
  post(1, Operation::fetch_add, word);
  post(2, Operation::write, slices);
}

void collect(Connection& connection, std::vector<std::byte>& sent) {
  for (;;) {
    std::size_t taken = 0;
    for (const auto& piece : connection.plan_send()) {
      const auto* at = static_cast<const std::byte*>(piece.iov_base);
      sent.insert(sent.end(), at, at + piece.iov_len);
      taken += piece.iov_len;
    }
    if (taken == 0) return;
    connection.sent(taken);
  }
}

void feed(Connection& connection, Bytes stream, Sizes sizes) {
  std::vector<iovec> plan;
  while (!stream.empty()) {
    plan.clear();
    connection.plan_receive(plan);
    require(plan.empty() == connection.ended());
    if (plan.empty()) return;
    auto rest = stream.first(std::min(stream.size(), sizes.next()));
    std::size_t landed = 0;
    for (const auto& piece : plan) {
      const std::size_t part = std::min(rest.size(), piece.iov_len);
      if (part > 0) std::memcpy(piece.iov_base, rest.data(), part);
      rest = rest.subspan(part);
      landed += part;
    }
    connection.received(landed);
    stream = stream.subspan(landed);
  }
}

// What was held is placed in the order in which it arrived.
void post_late_receives(Host& host, Connection& connection) {
  if (!connection.starving() || connection.ended()) return;
  host.post_receives(6);
  connection.receives_posted(0);
}

Outcome run(unsigned options, Bytes stream, unsigned cuts) {
  const bool weft = (options & weft_peer_option) != 0;
  const bool unreliable = (options & unreliable_option) != 0;
  const bool holds = (options & hold_option) != 0 && !unreliable;
  Host host(holds ? 1 : 6);
  Connection connection(
      {.initiator = (options & initiator_option) != 0,
       .crc = (options & crc_option) != 0,
       .strict_crc = (options & strict_option) != 0,
       .ird = 4,
       .wire_ord = 4,
       .ord = 3,
       .rtr = (options & rtr_send_option) != 0 ? iwarp::RtrKind::send : iwarp::RtrKind::none,
       .receiver_not_ready = {.hold_bytes = holds ? hold_bytes : 0},
       .unreliable = unreliable,
       .peer = weft ? weft_peer : iwarp::PeerFeatures{},
       .control_stag = weft ? control_stag : 0},
      host);
  Outcome outcome;
  if ((options & initiator_option) != 0) {
    post_requests(connection);
    collect(connection, outcome.sent);
  }
  feed(connection, stream, Sizes(cuts));
  collect(connection, outcome.sent);
  post_late_receives(host, connection);
  collect(connection, outcome.sent);
  connection.close();
  collect(connection, outcome.sent);
  require(connection.drained());
  host.check_untouched();
  outcome.events = host.events;
  outcome.memory = host.memory();
  return outcome;
}

void put_crcs_right(std::span<std::byte> stream) {
  while (const auto view = wire::FpduView::check(stream)) {
    const auto covered = stream.first(view->size() - wire::fpdu_crc_bytes);
    wire::store_fpdu_crc(covered.data() + covered.size(), crc32c(covered));
    stream = stream.subspan(view->size());
  }
}

void check_sent(Bytes sent, bool crc) {
  while (!sent.empty()) {
    const auto view = wire::FpduView::check(sent);
    require(view.ok());
    require(!crc || view->crc_good());
    sent = sent.subspan(view->size());
  }
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size < 2) return 0;
  const auto input = fuzz::input_bytes(data, size).subspan(2);
  std::vector<std::byte> stream(input.begin(), input.end());
  if ((data[0] & fuzz::raw_crc_option) == 0) fuzz::put_crcs_right(stream);
  const auto whole = fuzz::run(data[0], stream, 0);
  fuzz::check_sent(whole.sent, (data[0] & fuzz::crc_option) != 0);
  fuzz::require(fuzz::run(data[0], stream, 1) == whole);
  fuzz::require(fuzz::run(data[0], stream, data[1]) == whole);
  return 0;
}
