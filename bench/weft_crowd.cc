// What many queue pairs between two processes cost: the time to connect them, the memory of idle
// ones, and the rate of requests that go to all of them in turn. One figure for each call, for
// compare.py.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <fstream>
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

constexpr std::uint32_t requests = 16;
constexpr std::uint32_t completions = 4096;

// The memory of this process alone, and what it shares by mapping, in KiB: proc_pid_status(5).
double resident_kib() {
  std::ifstream status("/proc/self/status");
  double sum = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:")) {
      sum += std::stod(line.substr(line.find(':') + 1));
    }
  }
  return sum;
}

// One end of `count` pairs of queue pairs.
class Crowd {
 public:
  explicit Crowd(int count)
      : context_(open_device()),
        domain_(context_.create_domain()),
        queue_(context_.create_completion_queue(completions)),
        memory_(domain_.register_memory(bytes_, Access::all)) {
    for (int i = 0; i < count; ++i) {
      prepared_.push_back(domain_.queue_pair(queue_, queue_)
                              .max_send_requests(requests)
                              .max_receive_requests(requests)
                              .access(Access::all)
                              .build());
    }
  }

  void tell(const Line& line) {
    using Bytes = std::array<std::byte, Endpoint::encoded_bytes>;
    // Few enough at a time for the buffer of the socket.
    constexpr std::size_t at_once = 100;
    for (std::size_t i = 0; i < prepared_.size(); i += at_once) {
      const std::size_t end = std::min(prepared_.size(), i + at_once);
      for (std::size_t k = i; k < end; ++k) line.send(prepared_[k].endpoint().to_bytes());
      for (std::size_t k = i; k < end; ++k) {
        peers_.push_back(*Endpoint::from_bytes(line.receive<Bytes>()));
      }
    }
    line.send(memory_.remote().address());
    line.send(memory_.remote().rkey());
    remote_address_ = line.receive<std::uint64_t>();
    remote_rkey_ = line.receive<std::uint32_t>();
  }

  void connect() {
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      queue_pairs_.push_back(std::move(prepared_[i]).handshake(peers_[i]));
    }
    prepared_.clear();
  }

  // One Write of eight bytes to each peer, which is done only where there is a connection.
  void write_to_all() {
    std::size_t waiting = 0;
    for (auto& queue_pair : queue_pairs_) {
      post(queue_pair);
      if (++waiting == completions / 2) await(waiting);
    }
    await(waiting);
  }

 private:
  void post(QueuePair& queue_pair) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(bytes_.data()), 8, memory_.lkey()};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {remote_address_, remote_rkey_};
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(queue_pair.raw(), &request, &bad) != 0) {
      throw std::runtime_error("a post failed");
    }
  }

  void await(std::size_t& waiting) {
    std::array<ibv_wc, 64> done;
    while (waiting > 0) {
      const int found = ibv_poll_cq(queue_.raw(), static_cast<int>(done.size()), done.data());
      for (int i = 0; i < found; ++i) {
        if (done[static_cast<std::size_t>(i)].status != IBV_WC_SUCCESS) {
          throw std::runtime_error(
              fmt::format("a request failed: {}",
                          weft::verbs::status_name(done[static_cast<std::size_t>(i)].status)));
        }
      }
      waiting -= static_cast<std::size_t>(found);
    }
  }

  std::vector<std::uint64_t> bytes_ = std::vector<std::uint64_t>(8);
  Context context_;
  ProtectionDomain domain_;
  CompletionQueue queue_;
  TypedRegion<std::uint64_t> memory_;
  std::vector<PreparedQueuePair> prepared_;
  std::vector<Endpoint> peers_;
  std::vector<QueuePair> queue_pairs_;
  std::uint64_t remote_address_ = 0;
  std::uint32_t remote_rkey_ = 0;
};

enum class Kind : std::uint8_t { connect_rate, resident, write_rate };

double measure(Kind kind, int count, int posts) {
  return run_two_processes([=](const Line& line, bool first) {
    const double empty_kib = resident_kib();
    Crowd crowd(count);
    crowd.tell(line);
    line.meet();
    Clock::time_point start = Clock::now();
    crowd.connect();
    crowd.write_to_all();
    line.meet();
    double result = count / seconds_since(start);
    if (kind == Kind::resident) result = (resident_kib() - empty_kib) / count;
    if (kind == Kind::write_rate) {
      const int turns = std::max(0, posts / count);
      start = Clock::now();
      for (int turn = 0; first && turn < turns; ++turn) crowd.write_to_all();
      result = turns * static_cast<double>(count) / seconds_since(start);
    }
    line.meet();
    return result;
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures many queue pairs between two processes. Prints one figure: queue pairs connected "
      "per second, KiB of memory for each, or requests per second"};
  const std::map<std::string, Kind> kinds{{"connect-rate", Kind::connect_rate},
                                          {"resident", Kind::resident},
                                          {"write-rate", Kind::write_rate}};
  Kind kind = Kind::connect_rate;
  int count = 1000;
  app.add_option("KIND", kind, "what to measure")
      ->required()
      ->transform(CLI::CheckedTransformer(kinds));
  app.add_option("--count", count, "queue pairs")->check(CLI::Range(1, 100'000));
  int posts = 400'000;
  app.add_option("--posts", posts, "requests of write-rate in all, behind the first to each")
      ->check(CLI::Range(0, 100'000'000));
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{:.9g}\n", measure(kind, count, posts));
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft_crowd: {}\n", error.what());
    return 1;
  }
  return 0;
}
