// What this machine can do without Weft, one figure for each call: the limits in compare.py.
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>

#include "page_bytes.h"
#include "peers.h"
#include "raw_tcp.h"
#include "raw_udp.h"

namespace weft::bench {
namespace {

namespace sys = device::sys;

// Memory that the two processes of run_pair() share.
class SharedBytes {
 public:
  explicit SharedBytes(std::size_t bytes) : bytes_(bytes) {
    at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED) throw std::runtime_error("cannot map shared memory");
  }
  ~SharedBytes() { munmap(at_, bytes_); }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  [[nodiscard]] std::uint8_t* at(std::size_t offset) const {
    return static_cast<std::uint8_t*>(at_) + offset;
  }

 private:
  void* at_;
  std::size_t bytes_;
};

// Half a round trip in microseconds through shared memory: each side stores its bytes and watches
// the last one of the other side.
double memory_latency(std::size_t bytes, int iterations) {
  const SharedBytes shared(2 * (bytes + 64));
  const auto turn = [&](std::size_t from, std::size_t to, std::uint8_t mark, bool first) {
    const std::vector<std::uint8_t> source(bytes, mark);
    const auto store = [&] {
      std::memcpy(shared.at(to), source.data(), bytes - 1);
      std::atomic_ref(*shared.at(to + bytes - 1)).store(mark, std::memory_order_release);
    };
    if (first) store();
    while (std::atomic_ref(*shared.at(from + bytes - 1)).load(std::memory_order_acquire) != mark) {
    }
    if (!first) store();
  };
  const std::size_t other = bytes + 64;
  const auto run = [=](bool first) {
    std::uint64_t start = 0;
    for (int i = -iterations / 10; i < iterations; ++i) {
      if (i == 0) start = sys::now_ns();
      const auto mark = static_cast<std::uint8_t>((i + iterations) % 255 + 1);
      turn(first ? other : 0, first ? 0 : other, mark, first);
    }
    return seconds_since(start) / iterations / 2 * 1e6;
  };
  return run_pair([=](const Lines&) { return run(true); }, [=](const Lines&) { run(false); });
}

// Bytes per second of process_vm_writev(2) into the other process, `bytes` a call.
double vm_write_rate(std::size_t bytes, int calls) {
  return run_pair(
      [=](Lines lines) {
        const PageBytes from(bytes, 1);
        const auto pid = static_cast<pid_t>(lines.receive_value());
        const iovec remote{reinterpret_cast<void*>(lines.receive_value()), bytes};
        const iovec local{from.data(), bytes};
        std::uint64_t start = 0;
        for (int i = -calls / 10; i < calls; ++i) {
          if (i == 0) start = sys::now_ns();
          if (process_vm_writev(pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes)) {
            throw std::runtime_error("process_vm_writev is refused");
          }
        }
        const double result = calls / seconds_since(start);
        lines.send_value(0);
        return result;
      },
      [=](Lines lines) {
        const PageBytes to(bytes, 2);
        lines.send_value(static_cast<std::uint64_t>(getpid()));
        lines.send_value(reinterpret_cast<std::uint64_t>(to.data()));
        (void)lines.receive_value();
      });
}

// Copies per second of `bytes` bytes that are in the processor's caches, as far as they fit.
double copy_rate(std::size_t bytes, int copies) {
  const PageBytes from(bytes, 1);
  const PageBytes to(bytes);
  const std::uint64_t start = sys::now_ns();
  for (int i = 0; i < copies; ++i) {
    std::memcpy(to.data(), from.data(), bytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // the copy must not be left out
  }
  return copies / seconds_since(start);
}

using Measure = std::function<double(std::size_t, int)>;

Measure half_trip(double (*measure)(std::size_t, int, Figure), Figure figure) {
  return [=](std::size_t bytes, int count) { return measure(bytes, count, figure); };
}

const std::map<std::string, Measure>& measures() {
  static const std::map<std::string, Measure> all{
      {"tcp-latency", half_trip(raw_latency, Figure::average)},
      {"tcp-latency-median", half_trip(raw_latency, Figure::median)},
      {"tcp-latency-p99", half_trip(raw_latency, Figure::p99)},
      {"tcp-sleeping-latency", half_trip(raw_sleeping_latency, Figure::average)},
      {"tcp-sleeping-latency-median", half_trip(raw_sleeping_latency, Figure::median)},
      {"tcp-rate", raw_rate},
      {"datagram-rate", raw_datagram_rate},
      {"memory-latency", memory_latency},
      {"vm-write-rate", vm_write_rate},
      {"copy-rate", copy_rate},
      {"tcp-connect-rate", [](std::size_t, int count) { return raw_connect_rate(count); }},
      {"tcp-turn-rate", [](std::size_t, int count) { return raw_turn_rate(count, 400'000); }},
  };
  return all;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  CLI::App app{
      "Measures what this machine can do without Weft. Prints one figure: microseconds for a "
      "latency, operations per second for a rate"};
  std::string kind;
  std::size_t bytes = 64;
  int count = 100'000;
  std::vector<std::string> kinds;
  for (const auto& [name, measure] : weft::bench::measures()) kinds.push_back(name);
  app.add_option("KIND", kind, "what to measure")->required()->check(CLI::IsMember(kinds));
  app.add_option("--bytes", bytes, "bytes of each operation")->check(CLI::Range(1, 1 << 30));
  app.add_option("--count", count, "operations")->check(CLI::Range(1, 1 << 30));
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{:.9g}\n", weft::bench::measures().at(kind)(bytes, count));
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft_limit: {}\n", error.what());
    return 1;
  }
  return 0;
}
