// What Weft makes of memory that two processes of one host both map (allocate_shared()). One figure
// for each call, for compare.py: perftest, which stands for ordinary memory there, has none of it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "two_processes.h"
#include "weft/verbs.hpp"

namespace {

using namespace weft::verbs;  // NOLINT(google-build-using-namespace)
using weft::bench::Clock;
using weft::bench::Line;
using weft::bench::run_two_processes;
using weft::bench::seconds_since;

constexpr std::size_t region_bytes = 4 << 20;
constexpr std::uint32_t queue_length = 256;

// One end of a connected pair, with a region that the peer maps.
class End {
 public:
  explicit End(const Line& line)
      : context_(open_device()),
        domain_(context_.create_domain()),
        queue_(context_.create_completion_queue(2 * queue_length)),
        region_(domain_.allocate_shared<std::uint8_t>(region_bytes, Access::all)),
        queue_pair_(connect(line)) {
    line.send(region_.remote().address());
    line.send(region_.remote().rkey());
    remote_address_ = line.receive<std::uint64_t>();
    remote_rkey_ = line.receive<std::uint32_t>();
  }

  [[nodiscard]] volatile std::uint8_t& byte(std::size_t index) { return region_[index]; }

  // Builds the list of `count` requests that run() posts.
  void prepare(ibv_wr_opcode opcode, std::size_t bytes, std::size_t count = 1,
               std::uint64_t to = 0) {
    piece_ = {reinterpret_cast<std::uint64_t>(&region_[0]), static_cast<std::uint32_t>(bytes),
              region_.lkey()};
    for (std::size_t i = 0; i < count; ++i) {
      ibv_send_wr& request = list_[i];
      request = {};
      request.next = i + 1 < count ? &list_[i + 1] : nullptr;
      request.sg_list = &piece_;
      request.num_sge = 1;
      request.opcode = opcode;
      if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic = {remote_address_, 1, 0, remote_rkey_};
      } else {
        request.wr.rdma = {remote_address_ + to, remote_rkey_};
      }
    }
    list_[count - 1].send_flags = IBV_SEND_SIGNALED;
  }
  // Posts the list, and waits until it is done.
  void run() {
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(queue_pair_.raw(), list_.data(), &bad) != 0) {
      throw std::runtime_error("a post failed");
    }
    ibv_wc done;
    while (ibv_poll_cq(queue_.raw(), 1, &done) == 0) {
    }
    if (done.status != IBV_WC_SUCCESS) throw std::runtime_error("a request failed");
  }

 private:
  QueuePair connect(const Line& line) {
    PreparedQueuePair prepared = domain_.queue_pair(queue_, queue_)
                                     .max_send_requests(queue_length)
                                     .max_receive_requests(1)
                                     .max_rd_atomic(16)
                                     .max_dest_rd_atomic(16)
                                     .access(Access::all)
                                     .build();
    line.send(prepared.endpoint().to_bytes());
    const auto bytes = line.receive<std::array<std::byte, Endpoint::encoded_bytes>>();
    QueuePair connected = std::move(prepared).handshake(*Endpoint::from_bytes(bytes));
    line.meet();
    return connected;
  }

  Context context_;
  ProtectionDomain domain_;
  CompletionQueue queue_;
  TypedRegion<std::uint8_t> region_;
  QueuePair queue_pair_;
  std::uint64_t remote_address_ = 0;
  std::uint32_t remote_rkey_ = 0;
  ibv_sge piece_{};
  std::array<ibv_send_wr, queue_length> list_{};
};

// `measure` runs in both processes, with true in the one whose result counts.
double run_pair(const std::function<double(End&, bool)>& measure) {
  return run_two_processes([&measure](const Line& line, bool first) {
    End end(line);
    const double result = measure(end, first);
    line.meet();
    return result;
  });
}

// Half a round trip in microseconds: each side watches the last byte that the other one writes.
double write_latency(std::size_t bytes, int iterations) {
  return run_pair([=](End& end, bool first) {
    const std::size_t there = region_bytes / 2;
    end.prepare(IBV_WR_RDMA_WRITE, bytes, 1, there);
    Clock::time_point start = Clock::now();
    for (int i = -iterations / 10; i < iterations; ++i) {
      if (i == 0) start = Clock::now();
      const auto mark = static_cast<std::uint8_t>((i + iterations) % 255 + 1);
      const auto write = [&] {
        end.byte(bytes - 1) = mark;
        end.run();
      };
      if (first) write();
      while (end.byte(there + bytes - 1) != mark) {
      }
      if (!first) write();
    }
    return seconds_since(start) / iterations / 2 * 1e6;
  });
}

// Operations per second, `list` posted at a time, one list after the other.
double rate(ibv_wr_opcode opcode, std::size_t bytes, int operations, std::size_t list) {
  return run_pair([=](End& end, bool first) {
    if (!first) return 0.0;
    const int lists = operations / static_cast<int>(list);
    end.prepare(opcode, bytes, list);
    Clock::time_point start = Clock::now();
    for (int i = -lists / 10; i < lists; ++i) {
      if (i == 0) start = Clock::now();
      end.run();
    }
    return static_cast<double>(lists) * static_cast<double>(list) / seconds_since(start);
  });
}

using Measure = std::function<double(std::size_t, int, std::size_t)>;

const std::map<std::string, Measure>& measures() {
  static const std::map<std::string, Measure> all{
      {"write-latency",
       [](std::size_t bytes, int count, std::size_t) { return write_latency(bytes, count); }},
      {"write-rate", [](std::size_t bytes, int count,
                        std::size_t list) { return rate(IBV_WR_RDMA_WRITE, bytes, count, list); }},
      {"read-rate", [](std::size_t bytes, int count,
                       std::size_t list) { return rate(IBV_WR_RDMA_READ, bytes, count, list); }},
      {"add-rate",
       [](std::size_t, int count, std::size_t list) {
         return rate(IBV_WR_ATOMIC_FETCH_AND_ADD, sizeof(std::uint64_t), count, list);
       }},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures Writes, Reads and atomics in memory that two processes map. Prints one figure: "
      "microseconds for a latency, operations per second for a rate"};
  std::string kind;
  std::size_t bytes = 64;
  std::size_t list = 1;
  int count = 100'000;
  std::vector<std::string> kinds;
  for (const auto& [name, measure] : measures()) kinds.push_back(name);
  app.add_option("KIND", kind, "what to measure")->required()->check(CLI::IsMember(kinds));
  app.add_option("--bytes", bytes, "bytes of each operation")
      ->check(CLI::Range(std::size_t{1}, region_bytes / 2));
  app.add_option("--count", count, "operations")->check(CLI::Range(1, 1 << 30));
  app.add_option("--list", list, "requests that are posted at a time")
      ->check(CLI::Range(std::size_t{1}, std::size_t{queue_length}));
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{:.9g}\n", measures().at(kind)(bytes, count, list));
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft_mapped: {}\n", error.what());
    return 1;
  }
  return 0;
}
