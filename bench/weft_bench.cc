// Compares the embedded device with raw TCP that moves the same bytes, alternating in each round:
// half round trips, bandwidth, message rate. The ratios count; absolute figures are for orientation
// only.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "peers.h"
#include "raw_tcp.h"

namespace weft::bench {
namespace {

namespace sys = device::sys;

// --- verbs ---------------------------------------------------------------------------------------

double send_latency(std::size_t bytes, int iterations, bool crc) {
  const auto turn = [=](VerbsEnd& end, bool first) {
    end.post_receive(bytes);
    if (first) end.post(IBV_WR_SEND, bytes);
    end.await(IBV_WC_RECV);
    if (!first) end.post(IBV_WR_SEND, bytes);
    end.await(IBV_WC_SEND);
  };
  return run_pair(
      [=](Lines lines) {
        VerbsEnd end(lines, crc, bytes);
        lines.send_value(0);
        (void)lines.receive_value();
        end.post_receive(bytes);
        std::uint64_t start = 0;
        for (int i = -iterations / 10; i < iterations; ++i) {
          if (i == 0) start = sys::now_ns();
          turn(end, true);
        }
        const double result = seconds_since(start) / iterations / 2 * 1e6;
        lines.send_value(0);
        (void)lines.receive_value();
        return result;
      },
      [=](Lines lines) {
        VerbsEnd end(lines, crc, bytes);
        end.post_receive(bytes);
        lines.send_value(0);
        (void)lines.receive_value();
        for (int i = -iterations / 10; i < iterations; ++i) turn(end, false);
        lines.send_value(0);
        (void)lines.receive_value();
      });
}

// Half a round trip of writes. The target polls the last byte of its buffer.
double write_latency(std::size_t bytes, int iterations, bool crc) {
  const auto turn = [=](VerbsEnd& end, std::uint8_t mark, bool first) {
    const auto write = [&] {
      end.data()[bytes - 1] = mark;
      end.post(IBV_WR_RDMA_WRITE, bytes, 1, true, 0, bytes);
    };
    if (first) write();
    while (end.data()[2 * bytes - 1] != mark) end.poll();
    if (!first) write();
    end.await(IBV_WC_RDMA_WRITE);
  };
  const auto mark_of = [](int i) { return static_cast<std::uint8_t>(i % 255 + 1); };
  return run_pair(
      [=](Lines lines) {
        VerbsEnd end(lines, crc, 2 * bytes);
        std::uint64_t start = 0;
        for (int i = -iterations / 10; i < iterations; ++i) {
          if (i == 0) start = sys::now_ns();
          turn(end, mark_of(i + iterations), true);
        }
        const double result = seconds_since(start) / iterations / 2 * 1e6;
        lines.send_value(0);
        (void)lines.receive_value();
        return result;
      },
      [=](Lines lines) {
        VerbsEnd end(lines, crc, 2 * bytes);
        for (int i = -iterations / 10; i < iterations; ++i) {
          turn(end, mark_of(i + iterations), false);
        }
        lines.send_value(0);
        (void)lines.receive_value();
      });
}

// Messages per second with `window` requests in flight, posted `batch` at a time.
double rate(ibv_wr_opcode opcode, std::size_t bytes, int messages, int batch, bool crc) {
  const int window = 128;
  return run_pair(
      [=](Lines lines) {
        VerbsEnd end(lines, crc, bytes);
        (void)lines.receive_value();
        const std::uint64_t start = sys::now_ns();
        int outstanding = 0;
        for (int sent = 0; sent < messages; sent += batch) {
          while (outstanding + batch > window) {
            end.poll();
            outstanding -= batch * std::exchange(end.others, 0);
          }
          end.post(opcode, bytes, batch);
          outstanding += batch;
        }
        while (outstanding > 0) {
          end.poll();
          outstanding -= batch * std::exchange(end.others, 0);
        }
        const double result = messages / seconds_since(start);
        lines.send_value(0);
        return result;
      },
      [=](Lines lines) {
        VerbsEnd end(lines, crc, bytes);
        const bool receives = opcode == IBV_WR_SEND;
        constexpr int posted = 256;
        if (receives) {
          for (int i = 0; i < posted; ++i) end.post_receive(bytes);
        }
        lines.send_value(0);
        for (int done = 0; receives && done < messages;) {
          end.poll();
          for (; end.receives > 0; --end.receives, ++done) {
            if (done + posted < messages) end.post_receive(bytes);
          }
        }
        (void)lines.receive_value();
      });
}

// --- the table -----------------------------------------------------------------------------------

struct Row {
  std::string name;
  std::function<double()> raw;
  std::function<double()> verbs;
  double unit = 1;
  const char* unit_name = "us";
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const Row& row, int rounds) {
  std::vector<double> raw;
  std::vector<double> verbs;
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) {
    raw.push_back(row.raw());
    verbs.push_back(row.verbs());
    ratios.push_back(verbs.back() / raw.back());
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print("{:<36} {:>8.2f} [{:.2f}..{:.2f}]   raw {:>9.2f} {:<6} weft {:>9.2f}\n", row.name,
             median(ratios), *low, *high, median(raw) * row.unit, row.unit_name,
             median(verbs) * row.unit);
  std::fflush(stdout);
}

std::vector<Row> rows(double scale) {
  const auto times = [scale](int count) { return std::max(1, static_cast<int>(count * scale)); };
  std::vector<Row> all;
  for (const bool crc : {false, true}) {
    const std::string tag = crc ? ", CRC" : "";
    for (const auto& [bytes, label] :
         {std::pair<std::size_t, const char*>{8, "8 B"}, {4096, "4 KiB"}, {65536, "64 KiB"}}) {
      const int iterations = times(bytes > 4096 ? 4000 : 20000);
      const std::size_t size = bytes;
      const auto raw = [=] { return raw_latency(size, iterations, Figure::average); };
      all.push_back({fmt::format("half round trip, send {}{}", label, tag), raw,
                     [=] { return send_latency(size, iterations, crc); }});
      all.push_back({fmt::format("half round trip, write {}{}", label, tag), raw,
                     [=] { return write_latency(size, iterations, crc); }});
    }
    for (const auto& [bytes, label] :
         {std::pair<std::size_t, const char*>{65536, "64 KiB"}, {1 << 20, "1 MiB"}}) {
      const int messages = times(static_cast<int>((std::size_t{1} << 30) / bytes));
      const std::size_t size = bytes;
      const double unit = static_cast<double>(size) * 1e-9;
      const auto raw = [=] { return raw_rate(size, messages); };
      for (const auto& [opcode, word] :
           {std::pair{IBV_WR_RDMA_WRITE, "write"}, {IBV_WR_RDMA_READ, "read"}}) {
        const auto operation = opcode;
        all.push_back({fmt::format("bandwidth, {} {}{}", word, label, tag), raw,
                       [=] { return rate(operation, size, messages, 1, crc); }, unit, "GB/s"});
      }
    }
    for (const int batch : {1, 32}) {
      const int messages = times(320'000);
      all.push_back({fmt::format("rate, 8 B sends, {} at a time{}", batch, tag),
                     [=] { return raw_rate(8, messages); },
                     [=] { return rate(IBV_WR_SEND, 8, messages, batch, crc); }, 1e-6, "M/s"});
    }
  }
  return all;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  CLI::App app{"Measures the embedded device against raw TCP on loopback"};
  int rounds = 5;
  double scale = 1;
  std::string only;
  app.add_option("--rounds", rounds, "rounds per row; the median is printed")
      ->check(CLI::Range(1, 99));
  app.add_option("--scale", scale, "how much to do per round, 1 is the default");
  app.add_option("--only", only, "only rows whose name contains this");
  CLI11_PARSE(app, argc, argv);
  fmt::print(
      "ratio weft/raw: median [min..max] of {} rounds; half round trips: lower is better, "
      "others: higher\n",
      rounds);
  for (const auto& row : weft::bench::rows(scale)) {
    if (row.name.find(only) != std::string::npos) weft::bench::measure(row, rounds);
  }
  return 0;
}
