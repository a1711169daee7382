// Two iWARP connections that are wired together, and what two programs do with them: the input is a
// list of calls. Beside requests there are late receives, memory that is deregistered while it is
// used, the clock, and the end of either side at any moment. The target checks that each request
// completes once and in order, that receives are taken in order, and that both sides come to an
// end. Each region is an allocation of its own and is freed when it is deregistered, so that the
// sanitizer sees every access beside or after it.
//
// The first byte selects the options. Each call has four bytes: side and call, and three arguments.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "fuzz/fuzz.h"
#include "iwarp/connection.h"

namespace weft::fuzz {
namespace {

using namespace iwarp;

constexpr std::size_t most_calls = 400;
constexpr std::size_t region_count = 4;
constexpr std::size_t region_bytes = 20'000;
constexpr std::uint64_t timer_ns = 1000;

constexpr unsigned no_crc_option = 1;
constexpr unsigned hold_option = 2;
constexpr unsigned unreliable_option = 4;
constexpr unsigned plain_peer_option = 8;  // no control words
constexpr unsigned small_frames_option = 16;
constexpr unsigned no_proofs_option = 32;
constexpr unsigned few_reads_option = 64;
constexpr unsigned extended_option = 128;  // XRC: requests name the queue of their receives

// Queues with a smaller number exist.
constexpr std::uint32_t queue_count = 3;

// The registered memory of one side. A region that is registered again has a new key.
class Regions {
 public:
  Regions() {
    for (std::size_t i = 0; i < region_count; ++i) renew(i);
  }
  [[nodiscard]] std::uint32_t key(std::size_t index) const { return regions_[index].key; }
  void renew(std::size_t index) {
    regions_[index] = {.key = ++last_key_ << 8,
                       .memory = std::make_unique<std::byte[]>(region_bytes)};
  }
  void renew_if_gone(std::size_t index) {
    if (!regions_[index].memory) renew(index);
  }
  // `before` is called while the memory still exists.
  template <typename Before>
  void remove(std::size_t index, Before before) {
    if (!regions_[index].memory) return;
    before(regions_[index].memory.get(), region_bytes);
    regions_[index].memory.reset();
  }
  [[nodiscard]] bool has(std::uint32_t key) const {
    return std::ranges::any_of(
        regions_, [key](const auto& region) { return region.memory && region.key == key; });
  }
  // Addresses begin at 0.
  [[nodiscard]] Memory find(std::uint32_t key, std::uint64_t offset, std::uint64_t length) const {
    for (const auto& region : regions_) {
      if (!region.memory || region.key != key) continue;
      if (offset > region_bytes || length > region_bytes - offset) return {nullptr, Fault::bounds};
      return {region.memory.get() + offset, Fault::none};
    }
    return {nullptr, Fault::invalid_stag};
  }

 private:
  struct Region {
    std::uint32_t key = 0;
    std::unique_ptr<std::byte[]> memory{};
  };
  std::uint32_t last_key_ = 0;
  std::array<Region, region_count> regions_{};
};

class Host final : public iwarp::Host {
 public:
  Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length,
                       RemoteRight /*right*/) override {
    require(!ended_);
    return regions.find(stag, offset, length);
  }
  Memory local_memory(const LocalSlice& slice, bool /*for_writing*/) override {
    return regions.find(slice.lkey, slice.address, slice.length_bytes);
  }
  bool next_receive(ReceiveRequest& request) override {
    if (receives_.empty()) return false;
    const std::uint32_t queue = request.queue;
    require(queue == 0 || named_[queue]);  // a message that was held has the name of its time
    request = receives_.front();
    request.queue = queue;
    queues_.push_back(queue);
    receives_.pop_front();
    ++taken_;
    return true;
  }
  bool name_receive_queue(std::uint32_t number) override {
    require(!ended_);
    if (number >= queue_count) return false;
    named_[number] = true;
    return true;
  }
  bool invalidate(std::uint32_t stag) override { return regions.has(stag); }
  Status carry_out_local() override { return Status::success; }
  void complete_send(const SendCompletion& completion) override {
    require(completion.wr_id >= completed_ && completion.wr_id < posted_);
    require(completion.covered <= completion.wr_id - completed_ + 1);
    completed_ = completion.wr_id + 1;
  }
  void complete_receive(const ReceiveCompletion& completion) override {
    require(completion.wr_id == received_++ && received_ <= taken_);
    require(completion.queue == queues_[completion.wr_id]);
  }
  void on_peer_ready() override {}
  void on_end(EndReason /*reason*/) override {
    require(!ended_);
    ended_ = true;
  }

  // A request that is posted after the end completes at once.
  [[nodiscard]] std::uint64_t next_send() { return posted_++; }
  void posted(bool signaled) {
    if (signaled) signaled_ = posted_;
  }
  void refused() { --posted_; }
  void post_receive(std::vector<LocalSlice> slices) {
    receives_.push_back({.wr_id = receives_posted_++, .slices = std::move(slices)});
  }
  // Once the stream has ended.
  void check_all_completed() const {
    require(ended_);
    require(completed_ >= signaled_);
    require(received_ == taken_);
  }

  Regions regions;

 private:
  std::deque<ReceiveRequest> receives_;
  std::vector<std::uint32_t> queues_;  // of the receives that were taken
  std::array<bool, queue_count> named_{};
  std::uint64_t receives_posted_ = 0, taken_ = 0, received_ = 0;
  std::uint64_t posted_ = 0, completed_ = 0;
  std::uint64_t signaled_ = 0;  // number of requests up to the last one that must complete
  bool ended_ = false;
};

Connection::Options options_of(unsigned choice, bool initiator) {
  const bool weft = (choice & plain_peer_option) == 0;
  const bool unreliable = (choice & unreliable_option) != 0;
  const std::size_t hold = (choice & hold_option) != 0 && !unreliable ? 5000 : 0;
  const std::uint16_t reads = (choice & few_reads_option) != 0 ? 2 : 8;
  Connection::Options options{.initiator = initiator,
                              .crc = (choice & no_crc_option) == 0,
                              .acknowledge = (choice & no_proofs_option) == 0 && !unreliable,
                              .ird = reads,
                              .wire_ord = reads,
                              .ord = static_cast<std::uint16_t>(reads - 1),
                              .rtr = RtrKind::write,
                              .unreliable = unreliable};
  options.limits.send_requests = 16;
  options.receiver_not_ready = {.hold_bytes = hold, .timer_ns = timer_ns, .retries = 3};
  if ((choice & small_frames_option) != 0) options.mulpdu_bytes = 128;
  if (weft) {
    options.control_stag = initiator ? 0xF001 : 0xF002;
    options.peer = {.send_immediate = true,
                    .control_stag = initiator ? 0xF002U : 0xF001U,
                    .hold_bytes = static_cast<std::uint32_t>(hold),
                    .names_queues = (choice & extended_option) != 0 && !unreliable};
  }
  return options;
}

struct Side {
  Side(unsigned choice, bool initiator) : connection(options_of(choice, initiator), host) {}

  Host host;
  Connection connection;
  std::uint64_t sent_bytes = 0;
  bool closed_by_peer = false;
};

struct Call {
  std::uint8_t code, first, second, third;
};

class World {
 public:
  explicit World(unsigned choice) : sides_{{{choice, true}, {choice, false}}} {}

  void carry_out(const Call& call) {
    Side& side = sides_[call.code & 1];
    Side& other = sides_[1 - (call.code & 1)];
    switch (call.code >> 1 & 15) {
      case 0:
        return post_receive(side, call);
      case 1:
        return (void)move(side, other, 1U + call.first + 256U * call.second);
      case 2:
        return remove(side, call.first % region_count);
      case 3:
        return side.host.regions.renew_if_gone(call.first % region_count);
      case 4:
        now_ns_ += call.first * 100U;
        return side.connection.on_time(now_ns_);
      case 5:
        return call.first == 7 && call.second == 7 ? side.connection.close() : void();
      case 6:
        return side.connection.announce_rnr_retries(call.first % 8);
      case 7:
        return exchange();
      default:
        return post(side, other, call);
    }
  }
  void finish() {
    exchange();
    sides_[0].connection.close();
    exchange();
    sides_[1].connection.close();
    exchange();
    for (Side& side : sides_) {
      require(side.connection.drained());
      side.host.check_all_completed();
    }
  }

 private:
  static LocalSlice slice_of(const Side& side, unsigned choice, std::uint32_t length) {
    // Sometimes beyond the end of the region.
    return {.address = choice * 70U,
            .length_bytes = length,
            .lkey = side.host.regions.key(choice % region_count)};
  }
  void post_receive(Side& side, const Call& call) {
    side.host.post_receive(
        {slice_of(side, call.first, call.second * 40U), slice_of(side, call.third, call.third)});
    if (side.connection.starving()) side.connection.receives_posted(now_ns_);
  }
  static void post(Side& side, const Side& other, const Call& call) {
    const auto operation = static_cast<Operation>(
        call.third % (static_cast<unsigned>(Operation::local_invalidate) + 1));
    if (operation == Operation::send_immediate && !side.connection.takes_send_immediate()) return;
    const std::uint32_t length = is_atomic(operation) ? 8 : call.first * 30U;
    const LocalSlice slices[] = {slice_of(side, call.second, length)};
    const bool signaled = (call.third & 0x80) == 0;
    const auto posted = side.connection.post(
        {.wr_id = side.host.next_send(),
         .operation = operation,
         .signaled = signaled,
         .solicited = (call.third & 0x40) != 0,
         .fence = (call.third & 0x20) != 0,
         .slices = is_local(operation) ? std::span<const LocalSlice>() : slices,
         .remote_address = is_atomic(operation) ? call.second * 8U : call.second * 70U,
         .rkey = other.host.regions.key(call.first % region_count),
         .immediate_be = 7,
         // Now and then one that does not exist.
         .receive_queue = call.second == 255 ? queue_count : call.second % queue_count});
    if (posted != Requester::Posted::ok) return side.host.refused();
    side.host.posted(signaled);
  }
  static void remove(Side& side, std::size_t index) {
    side.host.regions.remove(index, [&](const std::byte* base, std::size_t bytes) {
      side.connection.forget(base, bytes);
    });
  }
  // Passes at most `most` bytes on. Returns whether anything has happened.
  bool move(Side& from, Side& to, std::size_t most) {
    std::vector<std::byte> bytes;
    for (const auto& piece : from.connection.plan_send()) {
      const auto* at = static_cast<const std::byte*>(piece.iov_base);
      bytes.insert(bytes.end(), at, at + std::min(piece.iov_len, most - bytes.size()));
      if (bytes.size() == most) break;
    }
    if (!bytes.empty()) {
      from.connection.sent(bytes.size());
      from.sent_bytes += bytes.size();
      receive(to, bytes);
      return true;
    }
    if (!from.connection.drained() || to.closed_by_peer) return false;
    to.closed_by_peer = true;
    to.connection.peer_closed(to.sent_bytes);
    return true;
  }
  void receive(Side& to, Bytes bytes) const {
    std::vector<iovec> plan;
    while (!bytes.empty()) {
      plan.clear();
      to.connection.plan_receive(plan);
      require(plan.empty() == to.connection.ended());
      if (plan.empty()) return;
      std::size_t landed = 0;
      for (const auto& piece : plan) {
        const std::size_t part = std::min(bytes.size() - landed, piece.iov_len);
        if (part > 0) std::memcpy(piece.iov_base, bytes.data() + landed, part);
        landed += part;
      }
      to.connection.received(landed);
      if (to.connection.clock_needed()) to.connection.on_time(now_ns_);
      bytes = bytes.subspan(landed);
    }
  }
  void exchange() {
    while (move(sides_[0], sides_[1], 4096) || move(sides_[1], sides_[0], 4096)) {
    }
  }

  std::array<Side, 2> sides_;
  std::uint64_t now_ns_ = 0;
};

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::fuzz;
  if (size == 0) return 0;
  World world(data[0]);
  for (std::size_t at = 1; at + 4 <= std::min(size, 1 + 4 * most_calls); at += 4) {
    world.carry_out({data[at], data[at + 1], data[at + 2], data[at + 3]});
  }
  world.finish();
  return 0;
}
