// One of two processes that exchange their endpoints as text, over standard output and input.
//
//   verbs_processes asks|answers < PEER'S_LINE > OUR_LINE
//
// `asks` performs every operation on the other's memory and checks the results; `answers` checks
// what arrived there. Both print what was correct.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>

#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::size_t words = 64;
constexpr std::size_t part = 8;  // words of one operation
// The layout of the memory of `answers`, in words.
constexpr std::size_t written = 8;
constexpr std::size_t written_with_immediate = 16;
constexpr std::size_t to_be_read = 24;
constexpr std::size_t counter = 32;
constexpr std::size_t sent = 40;

void need(bool right, std::string_view what) {
  if (!right) throw std::runtime_error(std::string(what) + " is wrong");
  std::cout << what << std::endl;
}

class Side {
 public:
  Side() : queue_pair_(connect()) {}

  void ask() {
    for (std::size_t i = 0; i < part; ++i) region_[i] = 100 + i;
    do_and_need("send", IBV_WC_SEND, queue_pair_.post_send(ours(0), 1));
    do_and_need("write", IBV_WC_RDMA_WRITE, queue_pair_.post_write(ours(0), theirs(written), 2));
    do_and_need("write with immediate", IBV_WC_RDMA_WRITE,
                queue_pair_.post_write_with_immediate(ours(0), theirs(written_with_immediate),
                                                      0xCAFE0001, 3));
    do_and_need("read", IBV_WC_RDMA_READ, queue_pair_.post_read(ours(part), theirs(to_be_read), 4));
    need(holds(part, 1000), "what was read");
    ask_for_atomics();
    do_and_need("send with immediate", IBV_WC_SEND,
                queue_pair_.post_send_with_immediate(ours(0), 0xCAFE0002, 9));
  }

  void answer() {
    need(next_received(1).size_bytes() == part * sizeof(std::uint64_t) && holds(sent, 100),
         "what was sent");
    need(next_received(2).immediate() == 0xCAFE0001 && holds(written_with_immediate, 100),
         "what was written with immediate");
    need(holds(written, 100), "what was written");
    need(next_received(3).immediate() == 0xCAFE0002, "what was sent with immediate");
    need(region_[counter] == 7, "the counter");
  }

 private:
  QueuePair connect() {
    for (std::size_t i = 0; i < part; ++i) region_[to_be_read + i] = 1000 + i;
    region_[counter] = 40;
    auto prepared = domain_.queue_pair(queue_, queue_)
                        .access(Access::all)
                        .max_send_requests(4)
                        .max_receive_requests(4)
                        .timeout(14)
                        .rnr_retry(7)
                        .build();
    std::cout << prepared.endpoint().to_string() << ' ' << region_.remote().to_string()
              << std::endl;
    std::string endpoint_text;
    std::string region_text;
    std::cin >> endpoint_text >> region_text;
    const auto peer = Endpoint::parse(endpoint_text);
    const auto memory = RemoteSlice::parse(region_text);
    if (!peer || !memory) throw std::runtime_error("the line is not an endpoint of a peer");
    memory_ = *memory;
    QueuePair connected = std::move(prepared).handshake(*peer);
    for (std::uint64_t id = 1; id <= 3; ++id) {
      if (connected.post_receive(ours(sent), id)) throw std::runtime_error("no receive");
    }
    return connected;
  }

  void ask_for_atomics() {
    const LocalSlice before = region_.slice(written, 1);
    do_and_need("fetch and add", IBV_WC_FETCH_ADD,
                queue_pair_.post_fetch_and_add(before, theirs(counter), 2, 5));
    need(region_[written] == 40, "what was there before the addition");
    do_and_need("compare and swap", IBV_WC_COMP_SWAP,
                queue_pair_.post_compare_and_swap(before, theirs(counter), 42, 7, 6));
    need(region_[written] == 42, "what was there before the swap");
    do_and_need("compare and swap", IBV_WC_COMP_SWAP,
                queue_pair_.post_compare_and_swap(before, theirs(counter), 42, 9, 7));
    need(region_[written] == 7, "what was there instead");
  }

  void do_and_need(std::string_view what, ibv_wc_opcode opcode, int failed) {
    if (failed) throw Error(failed, "cannot post: " + std::string(what));
    need(next().opcode() == opcode, what);
  }
  Completion next_received(std::uint64_t id) {
    const Completion received = next();
    need(received.is_receive() && received.id() == id, "a receive");
    return received;
  }
  Completion next() {
    std::array<Completion, 1> one;
    const auto got = queue_.wait(one, std::chrono::seconds(30));
    if (got.empty()) throw std::runtime_error("no completion");
    if (!got[0].ok()) throw std::runtime_error(to_string(got[0]));
    return got[0];
  }

  [[nodiscard]] LocalSlice ours(std::size_t first) const { return region_.slice(first, part); }
  [[nodiscard]] RemoteSlice theirs(std::size_t first) const {
    return memory_.slice(first * sizeof(std::uint64_t), part * sizeof(std::uint64_t));
  }
  [[nodiscard]] bool holds(std::size_t first, std::uint64_t start) const {
    std::array<std::uint64_t, part> wanted;
    std::iota(wanted.begin(), wanted.end(), start);
    return std::ranges::equal(region_.elements().subspan(first, part), wanted);
  }

  Context context_ = open_device();
  ProtectionDomain domain_ = context_.create_domain();
  CompletionQueue queue_ = context_.create_completion_queue(16);
  TypedRegion<std::uint64_t> region_ = domain_.allocate<std::uint64_t>(words, Access::all);
  RemoteSlice memory_;
  QueuePair queue_pair_;
};

void run(std::string_view role) {
  if (role != "asks" && role != "answers") throw std::runtime_error("asks or answers?");
  Side side;
  role == "asks" ? side.ask() : side.answer();
}

}  // namespace
}  // namespace weft::verbs

int main(int count, char** arguments) {
  try {
    weft::verbs::run(count == 2 ? arguments[1] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_processes: %s\n", error.what());
    return 1;
  }
}
