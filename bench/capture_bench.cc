// Measures how fast captures are read: `weft dissect` in its modes, compared with a plain walk over
// the packets, with tcpdump and with tshark. Each runs in a separate process, and they alternate
// within each round. With --processors it compares the time that passes on one processor and on
// two.
//
// The first input is made of two captures in tests/data: NFS over the kernel's soft RoCE and over
// its soft iWARP. The packets are unchanged, with ICRC or plain FPDUs, and the captures are
// repeated until there are enough bytes. Each copy begins 100 seconds after the one before, so its
// connections are new ones with the same numbers. The others have large frames only, of which the
// bytes per second count, and small ones only, of which the packets per second count.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#ifdef WEFT_MADE_LOADS
#include "capture/made_load.h"
#endif
#include "weft/capture/packet_source.hpp"

namespace {

using weft::Bytes;
namespace capture = weft::capture;

struct Settings {
  std::string data = WEFT_TEST_DATA;
  std::string weft = WEFT_PROGRAM;
  std::string file;
  std::uint64_t megabytes = 300;
  int rounds = 3;
  bool processors = false;
};

// --- The capture ---------------------------------------------------------------------------------

class PcapWriter {
 public:
  explicit PcapWriter(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) throw std::runtime_error("cannot write " + path);
    put<std::uint32_t>(0xA1B23C4D);  // nanoseconds
    put<std::uint16_t>(2);
    put<std::uint16_t>(4);
    for (const std::uint32_t value : {0U, 0U, 262'144U, 1U}) put(value);
  }
  ~PcapWriter() { std::fclose(file_); }
  PcapWriter(const PcapWriter&) = delete;
  PcapWriter& operator=(const PcapWriter&) = delete;

  void add(const capture::RawPacket& packet, std::int64_t time_ns) {
    add(packet.bytes, packet.wire_bytes, time_ns);
  }
  void add(Bytes bytes, std::size_t wire_bytes, std::int64_t time_ns) {
    constexpr std::int64_t second_ns = 1'000'000'000;
    put(static_cast<std::uint32_t>(time_ns / second_ns));
    put(static_cast<std::uint32_t>(time_ns % second_ns));
    put(static_cast<std::uint32_t>(bytes.size()));
    put(static_cast<std::uint32_t>(wire_bytes));
    bytes_ += std::fwrite(bytes.data(), 1, bytes.size(), file_);
    ++packets_;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t packets() const { return packets_; }

 private:
  template <typename T>
  void put(T value) {
    bytes_ += std::fwrite(&value, 1, sizeof value, file_);
  }

  std::FILE* file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t packets_ = 0;
};

struct Made {
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
};

constexpr std::int64_t pause_ns = 100'000'000'000;

Made make_capture(const Settings& settings, const std::string& path, std::uint64_t bytes,
                  std::int64_t now_ns = pause_ns) {
  PcapWriter out(path);
  while (out.bytes() < bytes) {
    for (const char* name : {"nfs3_rxe", "nfs4_siw"}) {
      const auto source = capture::open_capture(settings.data + "/" + name + ".pcap.zst");
      capture::RawPacket packet;
      std::int64_t first_ns = -1;
      std::int64_t last_ns = 0;
      while (source->next(packet)) {
        if (first_ns < 0) first_ns = packet.time_ns;
        last_ns = now_ns + packet.time_ns - first_ns;
        out.add(packet, last_ns);
      }
      now_ns = last_ns + pause_ns;
    }
  }
  return {out.bytes(), out.packets()};
}

// --- Measuring -----------------------------------------------------------------------------------

struct Cost {
  double cpu_s = 0;
  double passed_s = 0;
  double memory_mb = 0;  // peak resident size
};

// Runs `act` in a new process without output. Measures processor time, because other programs may
// use the processor too.
Cost measure(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    act();
    std::_Exit(0);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  // Exit status 1 means that there are findings.
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) return {};
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), passed.count(),
          static_cast<double>(usage.ru_maxrss) * 1024 / 1e6};
}

std::function<void()> program(std::vector<std::string> words) {
  return [words = std::move(words)]() mutable {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::_Exit(127);
  };
}

// Runs `act` on the first processor only that this process may use.
std::function<void()> on_one_processor(std::function<void()> act) {
  return [act = std::move(act)] {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t at = 0; CPU_COUNT(&one) == 0; ++at) {
      if (CPU_ISSET(at, &all)) CPU_SET(at, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
    act();
  };
}

void walk(const std::string& path) {
  const auto source = capture::open_capture(path);
  capture::RawPacket packet;
  std::uint64_t bytes = 0;
  while (source->next(packet)) bytes += packet.bytes.size();
  std::printf("%llu\n", static_cast<unsigned long long>(bytes));
}

struct Mode {
  const char* name;
  std::function<void()> act;
  Made made;
  std::vector<Cost> costs{};

  [[nodiscard]] Cost median() {
    std::ranges::sort(costs, {}, &Cost::cpu_s);
    return costs[costs.size() / 2];
  }
};

// Prints the medians of the modes, each beside that of tshark, which is at `base`.
void print_modes(std::vector<Mode>& modes, std::size_t base) {
  fmt::print("{:24} {:>9} {:>13} {:>12} {:>11}\n", "", "MB/s", "packets/s", "x io,phs", "memory");
  const auto rate = [](Mode& mode) {
    const double cpu_s = mode.median().cpu_s;
    return cpu_s > 0 ? static_cast<double>(mode.made.bytes) / 1e6 / cpu_s : 0;
  };
  const double tshark = rate(modes[base]);
  for (Mode& mode : modes) {
    const Cost cost = mode.median();
    if (cost.cpu_s <= 0) {
      fmt::print("{:24} did not run\n", mode.name);
      continue;
    }
    fmt::print("{:24} {:9.1f} {:13.0f} {:12} {:8.0f} MB\n", mode.name, rate(mode),
               static_cast<double>(mode.made.packets) / cost.cpu_s,
               tshark > 0 ? fmt::format("{:.2f}", rate(mode) / tshark) : "", cost.memory_mb);
  }
}

#ifdef WEFT_MADE_LOADS
Made make_load(std::string_view name, const std::string& path, std::size_t packets) {
  namespace test = capture::test;
  PcapWriter out(path);
  test::make_load(name, packets, [&out](const test::MadePacket& packet) {
    out.add(packet.bytes, packet.wire_bytes, packet.time_ns);
  });
  return {out.bytes(), out.packets()};
}

// Captures with large frames and with small ones, on one processor. tshark reads a tenth.
void compare_loads(const Settings& settings, const std::string& folder) {
  const std::string path = folder + "/load.pcap";
  const std::string part = folder + "/part.pcap";
  for (const std::string_view name : capture::test::load_names) {
    const bool large = name.starts_with("large");
    const std::size_t frame_bytes = large ? 4'096 : 110;
    const std::size_t packets = settings.megabytes * 1'000'000 / frame_bytes / (large ? 1 : 3);
    const Made made = make_load(name, path, packets);
    const Made made_part = make_load(name, part, packets / 10);
    std::vector<Mode> modes{
        {"walk over the packets", [&] { walk(path); }, made},
        {"weft dissect", on_one_processor(program({settings.weft, "dissect", path})), made},
        {"tcpdump -r", program({"tcpdump", "-nn", "-r", path}), made},
        {"tshark -q -z io,phs", program({"tshark", "-q", "-z", "io,phs", "-r", part}), made_part},
    };
    for (int round = 0; round < settings.rounds; ++round) {
      for (Mode& mode : modes) mode.costs.push_back(measure(mode.act));
    }
    fmt::print("\n{}: {:.0f} MB, {} packets\n", name, static_cast<double>(made.bytes) / 1e6,
               made.packets);
    print_modes(modes, 3);
  }
  for (const std::string& made : {path, part}) unlink(made.c_str());
}
#endif

void compare(const Settings& settings, const std::string& large, const std::string& small,
             const Made& made, const Made& made_small) {
  const std::string& weft = settings.weft;
  std::vector<Mode> modes{
      {"walk over the packets", [&] { walk(large); }, made},
      {"weft dissect", program({weft, "dissect", large}), made},
      {"  --operations --json", program({weft, "dissect", "--operations", "--json", large}), made},
      {"  --rpc --json", program({weft, "dissect", "--rpc", "--json", large}), made},
      {"  --html", program({weft, "dissect", "--html", large + ".html", large}), made},
      {"tcpdump -r", program({"tcpdump", "-nn", "-r", large}), made},
      {"tshark -q -z io,phs", program({"tshark", "-q", "-z", "io,phs", "-r", large}), made},
      {"tshark -T json, a part", program({"tshark", "-T", "json", "-r", small}), made_small},
  };
  for (int round = 0; round < settings.rounds; ++round) {
    for (Mode& mode : modes) mode.costs.push_back(measure(mode.act));
  }
  print_modes(modes, 6);
}

// The time that passes matters here, so nothing else should run on the machine. One and two
// processors alternate, and the ratio is that of each round.
void compare_processors(const Settings& settings, const std::string& large, const Made& made) {
  const std::string packed = large + ".zst";
  const std::string later = large + ".later";
  (void)measure(program({"zstd", "-q", "-f", "-3", large, "-o", packed}));
  constexpr std::int64_t day_ns = 86'400 * pause_ns;
  const Made made_later = make_capture(settings, later, made.bytes, day_ns);
  struct Pair {
    const char* name;
    std::function<void()> act;
    std::uint64_t bytes = 0;
    std::vector<Cost> one{};
    std::vector<Cost> two{};
    std::vector<double> ratios{};
  };
  const std::string& weft = settings.weft;
  std::vector<Pair> pairs{
      {"weft dissect", program({weft, "dissect", large}), made.bytes},
      {"  of a file in zstd", program({weft, "dissect", packed}), made.bytes},
      {"  of two files", program({weft, "dissect", large, later}), made.bytes + made_later.bytes},
      {"  --operations --json", program({weft, "dissect", "--operations", "--json", large}),
       made.bytes},
  };
  for (int round = 0; round < settings.rounds; ++round) {
    for (Pair& pair : pairs) {
      pair.one.push_back(measure(on_one_processor(pair.act)));
      pair.two.push_back(measure(pair.act));
      pair.ratios.push_back(pair.one.back().passed_s / pair.two.back().passed_s);
    }
  }
  const auto median = [](std::vector<Cost>& costs) {
    std::ranges::sort(costs, {}, &Cost::passed_s);
    return costs[costs.size() / 2];
  };
  fmt::print("{:24} {:>12} {:>12} {:>8} {:>11} {:>11}\n", "", "one, MB/s", "two, MB/s", "ratio",
             "one, memory", "two, memory");
  for (Pair& pair : pairs) {
    const Cost one = median(pair.one);
    const Cost two = median(pair.two);
    std::ranges::sort(pair.ratios);
    const double megabytes = static_cast<double>(pair.bytes) / 1e6;
    fmt::print("{:24} {:12.0f} {:12.0f} {:8.2f} {:8.0f} MB {:8.0f} MB\n", pair.name,
               megabytes / one.passed_s, megabytes / two.passed_s,
               pair.ratios[pair.ratios.size() / 2], one.memory_mb, two.memory_mb);
  }
  for (const auto& path : {packed, later}) unlink(path.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  CLI::App app("How fast captures are read, by time of one processor.");
  app.add_option("--megabytes", settings.megabytes, "Of the capture")->capture_default_str();
  app.add_option("--rounds", settings.rounds, "The medians are shown")->capture_default_str();
  app.add_option("--weft", settings.weft, "The program")->capture_default_str();
  app.add_flag("--processors", settings.processors,
               "Compare the time that passes on one processor and on two");
  app.add_option("--make", settings.file, "Only write the capture, to this file");
  CLI11_PARSE(app, count, arguments);
  try {
    if (!settings.file.empty()) {
      const Made made = make_capture(settings, settings.file, settings.megabytes * 1'000'000);
      fmt::print("{} bytes, {} packets\n", made.bytes, made.packets);
      return 0;
    }
    std::string folder = "/tmp/capture-bench-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make " + folder);
    const std::string large = folder + "/large.pcap";
    const std::string small = folder + "/small.pcap";
    const Made made = make_capture(settings, large, settings.megabytes * 1'000'000);
    const Made made_small = make_capture(settings, small, 1'000'000);
    fmt::print("{:.0f} MB, {} packets; MB and packets by second of one processor\n",
               static_cast<double>(made.bytes) / 1e6, made.packets);
    if (settings.processors) {
      compare_processors(settings, large, made);
    } else {
      compare(settings, large, small, made, made_small);
#ifdef WEFT_MADE_LOADS
      compare_loads(settings, folder);
#endif
    }
    for (const auto& path : {large, large + ".html", small}) unlink(path.c_str());
    rmdir(folder.c_str());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "capture_bench: {}\n", error.what());
    return 1;
  }
}
