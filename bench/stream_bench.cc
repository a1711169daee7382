// Compares byte streams with TCP sockets between the same two processes, alternating: half round
// trips, throughput, rate of small sends, connections a second. The ratios count; absolute figures
// are for orientation only.
//
// In most rows a call waits for bytes; a call of a stream polls for a while and then sleeps. In the
// row "both poll" no call waits. In the row "both sleep" each side pauses before it sends, and the
// other side goes to sleep in this pause.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "resident_memory.h"
#include "two_processes.h"
#include "weft/stream.hpp"

extern char** environ;

namespace weft::bench {
namespace {

// The operations that both kinds of streams have.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void send(std::span<const std::byte> bytes) = 0;
  virtual void receive(std::span<std::byte> into) = 0;
  // The same by calls that do not wait.
  void poll(std::span<std::byte> into) {
    while (!into.empty()) into = into.subspan(take(into));
  }

 private:
  // What is there; may be nothing.
  virtual std::size_t take(std::span<std::byte> into) = 0;
};

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(int fd) : fd_(fd) {
    if (fd < 0) throw std::runtime_error("cannot connect by TCP");
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~TcpChannel() override { close(fd_); }
  TcpChannel(const TcpChannel&) = delete;
  TcpChannel& operator=(const TcpChannel&) = delete;

  void send(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) throw std::runtime_error("the TCP connection has ended");
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
  void receive(std::span<std::byte> into) override {
    if (recv(fd_, into.data(), into.size(), MSG_WAITALL) != static_cast<ssize_t>(into.size())) {
      throw std::runtime_error("the TCP connection has ended");
    }
  }

 private:
  std::size_t take(std::span<std::byte> into) override {
    const auto got = recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0 || errno != EAGAIN) throw std::runtime_error("the TCP connection has ended");
    return 0;
  }

  int fd_;
};

class StreamChannel final : public Channel {
 public:
  explicit StreamChannel(stream::Stream stream) : stream_(std::move(stream)) {}
  void send(std::span<const std::byte> bytes) override {
    if (stream_.send(bytes).bytes != bytes.size()) throw std::runtime_error("the stream has ended");
  }
  void receive(std::span<std::byte> into) override {
    const auto got = stream_.receive(into, Deadline::never(), {.wait_all = true});
    if (got.bytes != into.size()) throw std::runtime_error("the stream has ended");
  }

 private:
  std::size_t take(std::span<std::byte> into) override {
    const auto got = stream_.receive(into, Deadline::now());
    if (!got.ok() && !got.would_block()) throw std::runtime_error("the stream has ended");
    return got.bytes;
  }

  stream::Stream stream_;
};

// `connections`: `count` further connections of the same kind, with one round trip each, one after
// the other. `idle`: `count` of them at once, which are kept.
enum class What : std::uint8_t { round_trips, one_way, connections, idle };

// How both sides of round trips wait.
enum class Waiting : std::uint8_t { as_usual, polling, asleep };

struct Work {
  What what = What::round_trips;
  std::uint32_t bytes = 0;
  std::uint32_t count = 0;
  Waiting waiting = Waiting::as_usual;
};

// Longer than the calls of a stream poll.
constexpr std::chrono::microseconds until_asleep{300};

// Before a side sends. Does not sleep, because a sleep would not end on time.
void pause(const Work& work) {
  if (work.waiting != Waiting::asleep) return;
  const auto end = Clock::now() + until_asleep;
  while (Clock::now() < end) {
  }
}

void receive(Channel& channel, std::span<std::byte> into, const Work& work) {
  if (work.waiting == Waiting::polling) return channel.poll(into);
  channel.receive(into);
}

// Waits for the next connection, or makes one.
using OpenChannel = std::function<std::unique_ptr<Channel>()>;

void serve(const OpenChannel& accept) {
  const auto first = accept();
  Channel& channel = *first;
  Work work;
  channel.receive(std::as_writable_bytes(std::span(&work, 1)));
  std::vector<std::byte> data(work.bytes);
  if (work.what == What::connections || work.what == What::idle) {
    std::vector<std::unique_ptr<Channel>> kept;
    for (std::uint32_t i = 0; i < work.count; ++i) {
      auto next = accept();
      next->receive(data);
      next->send(data);
      if (work.what == What::idle) kept.push_back(std::move(next));
    }
    if (work.what == What::idle)
      channel.receive(std::span(data).first(1));  // until they are counted
    return;
  }
  for (std::uint32_t i = 0; i < work.count; ++i) {
    receive(channel, data, work);
    if (work.what != What::round_trips) continue;
    pause(work);
    channel.send(data);
  }
  if (work.what == What::one_way) channel.send(std::span(data).first(1));
}

// Returns the seconds for all of the work, without pauses.
double drive(const OpenChannel& connect, const Work& work) {
  const auto first = connect();
  Channel& channel = *first;
  channel.send(std::as_bytes(std::span(&work, 1)));
  std::vector<std::byte> data(work.bytes);
  const auto start = Clock::now();
  for (std::uint32_t i = 0; work.what == What::connections && i < work.count; ++i) {
    const auto next = connect();
    next->send(data);
    next->receive(data);
  }
  for (std::uint32_t i = 0; work.what != What::connections && i < work.count; ++i) {
    pause(work);
    channel.send(data);
    if (work.what == What::round_trips) receive(channel, data, work);
  }
  if (work.what == What::one_way) channel.receive(std::span(data).first(1));
  const std::uint32_t pauses = work.waiting == Waiting::asleep ? 2 * work.count : 0;
  return std::chrono::duration<double>(Clock::now() - start - pauses * until_asleep).count();
}

double descriptors_of(pid_t process) {
  const std::filesystem::directory_iterator all(fmt::format("/proc/{}/fd", process));
  return static_cast<double>(std::distance(begin(all), end(all)));
}

// Memory and descriptors of both ends together for each connection that is idle.
struct IdleCost {
  ResidentMemory memory;
  double descriptors = 0;

  [[nodiscard]] static IdleCost of(pid_t peer) {
    IdleCost both{ResidentMemory::of(getpid()), descriptors_of(getpid()) + descriptors_of(peer)};
    both.memory.add(ResidentMemory::of(peer), 1);
    return both;
  }
  // What each of `count` connections has added to `before`.
  [[nodiscard]] IdleCost since(const IdleCost& before, double count) const {
    IdleCost each{{}, (descriptors - before.descriptors) / count};
    each.memory.add(memory, 1 / count).add(before.memory, -1 / count);
    return each;
  }
};

IdleCost cost_of_idle(const OpenChannel& connect, pid_t peer, std::uint32_t count) {
  const auto first = connect();
  const Work work{What::idle, 64, count};
  first->send(std::as_bytes(std::span(&work, 1)));
  std::vector<std::byte> data(work.bytes);
  std::vector<std::unique_ptr<Channel>> kept;
  IdleCost before;
  for (std::uint32_t i = 0; i < count; ++i) {
    kept.push_back(connect());
    kept.back()->send(data);
    kept.back()->receive(data);
    if (i == 0) before = IdleCost::of(peer);
  }
  const IdleCost cost = IdleCost::of(peer).since(before, count - 1);
  first->send(std::span(data).first(1));
  return cost;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

stream::Options options_of(std::uint32_t ring_bytes) {
  stream::Options options;
  options.send_buffer_bytes = options.receive_buffer_bytes = ring_bytes;
  return options;
}

// The other process: serves one connection after the other, by TCP and by streams, until it is
// killed.
[[noreturn]] void be_peer(std::uint32_t ring_bytes) {
  const int door = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (bind(door, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(door, 8) != 0 ||
      getsockname(door, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("stream_bench: cannot listen");
    std::exit(1);
  }
  stream::Listener listener({"127.0.0.1", 0}, options_of(ring_bytes));
  listener.listen();
  fmt::print("{} {}\n", ntohs(address.sin_port), listener.port());
  std::fflush(stdout);
  while (true) {
    serve([&] { return std::make_unique<TcpChannel>(accept(door, nullptr, nullptr)); });
    serve([&] { return std::make_unique<StreamChannel>(listener.accept(Deadline::never())); });
  }
}

class Peer {
 public:
  // `pinned`: it has a processor of its own.
  Peer(std::uint32_t ring_bytes, bool pinned) : ring_bytes_(ring_bytes) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::array<std::string, 5> words{"/proc/self/exe", "--peer", "--ring",
                                     std::to_string(ring_bytes), "--pinned"};
    std::array<char*, 6> arguments{};
    for (std::size_t i = 0; i < words.size() - (pinned ? 0 : 1); ++i) {
      arguments[i] = words[i].data();
    }
    if (posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
      throw std::runtime_error("cannot start the other process");
    }
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::array<char, 64> text{};
    if (read(ends[0], text.data(), text.size() - 1) <= 0 ||
        std::sscanf(text.data(), "%hu %hu", &tcp_port_, &stream_port_) != 2) {
      throw std::runtime_error("the other process does not listen");
    }
    close(ends[0]);
  }
  ~Peer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] double by_tcp(const Work& work) const {
    return drive([this] { return connect_by_tcp(); }, work);
  }
  [[nodiscard]] double by_stream(const Work& work) const {
    return drive([this] { return connect_by_stream(); }, work);
  }
  [[nodiscard]] IdleCost idle_tcp(std::uint32_t count) const {
    return cost_of_idle([this] { return connect_by_tcp(); }, pid_, count);
  }
  [[nodiscard]] IdleCost idle_streams(std::uint32_t count) const {
    return cost_of_idle([this] { return connect_by_stream(); }, pid_, count);
  }

 private:
  [[nodiscard]] std::unique_ptr<Channel> connect_by_tcp() const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(tcp_port_);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect by TCP");
    }
    return std::make_unique<TcpChannel>(fd);
  }
  [[nodiscard]] std::unique_ptr<Channel> connect_by_stream() const {
    stream::Stream stream(options_of(ring_bytes_));
    stream.connect({"127.0.0.1", stream_port_}, std::chrono::seconds(30));
    return std::make_unique<StreamChannel>(std::move(stream));
  }

  std::uint32_t ring_bytes_;
  pid_t pid_ = 0;
  std::uint16_t tcp_port_ = 0;
  std::uint16_t stream_port_ = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Row {
  const char* name;
  Work work;
  const char* unit;
  // converts a rate per second into the unit; 0: the unit is microseconds each way
  double per_second;
};

void measure(const Peer& peer, const Row& row, int rounds) {
  std::vector<double> tcp;
  std::vector<double> stream;
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) {
    tcp.push_back(peer.by_tcp(row.work));
    stream.push_back(peer.by_stream(row.work));
    ratios.push_back(row.per_second > 0 ? tcp.back() / stream.back() : stream.back() / tcp.back());
  }
  const auto figure = [&](double seconds) {
    return row.per_second > 0 ? row.per_second / seconds : seconds / row.work.count / 2 * 1e6;
  };
  fmt::print("{:<28} {:>9.1f} {:>9.1f} {:<6} {:>6.2f}\n", row.name, figure(median(tcp)),
             figure(median(stream)), row.unit, median(ratios));
}

// Not a matter of time, so it is counted once. Of TCP's connections the kernel's memory is not
// counted.
void count_idle(const Peer& peer, std::uint32_t count, std::string_view only) {
  const std::string name = fmt::format("{} idle connections", count);
  if (name.find(only) == std::string::npos) return;
  const IdleCost tcp = peer.idle_tcp(count);
  const IdleCost stream = peer.idle_streams(count);
  const auto line = [](std::string_view what, double of_tcp, double of_stream, const char* unit) {
    fmt::print("{:<28} {:>9.1f} {:>9.1f} {}\n", what, of_tcp, of_stream, unit);
  };
  line(name, tcp.memory.sum(), stream.memory.sum(), "KiB for both ends");
  for (std::size_t i = 0; i < ResidentMemory::kinds; ++i) {
    line(fmt::format("  {}", ResidentMemory::names[i]), tcp.memory.by_kind[i],
         stream.memory.by_kind[i], "KiB");
  }
  line("  besides, page tables", tcp.memory.page_tables, stream.memory.page_tables, "KiB");
  line("", tcp.descriptors, stream.descriptors, "descriptors");
}

struct Settings {
  int rounds = 7;
  double effort = 1;
  std::uint32_t idle = 1000;
  std::string only;
  bool pinned = false;
};

void run(std::uint32_t ring_bytes, const Settings& settings) {
  const auto times = [&](double count) {
    return static_cast<std::uint32_t>(std::max(count * settings.effort, 10.0));
  };
  const std::uint32_t small = times(10'000);
  const std::uint32_t many = times(50'000);
  const std::uint32_t large = times(2'000);
  const auto megabytes = [](std::uint32_t count, double bytes) { return count * bytes / 1e6; };
  const std::uint32_t connections = times(500);
  const std::array<Row, 9> rows{{
      {"half round trip, 64 B", {What::round_trips, 64, small}, "us", 0},
      {"half round trip, both poll", {What::round_trips, 64, small, Waiting::polling}, "us", 0},
      {"half round trip, both sleep",
       {What::round_trips, 64, small / 10, Waiting::asleep},
       "us",
       0},
      {"half round trip, 4 KiB", {What::round_trips, 4096, small}, "us", 0},
      {"throughput, 16 KiB sends",
       {What::one_way, 16384, large * 4},
       "MB/s",
       megabytes(large * 4, 16384)},
      {"throughput, 64 KiB sends", {What::one_way, 65536, large}, "MB/s", megabytes(large, 65536)},
      {"throughput, 1 MiB sends",
       {What::one_way, 1 << 20, large / 8},
       "MB/s",
       megabytes(large / 8, 1 << 20)},
      {"rate of 64 B sends", {What::one_way, 64, many}, "k/s", many / 1e3},
      {"connections, 64 B each way",
       {What::connections, 64, connections},
       "1/s",
       static_cast<double>(connections)},
  }};
  fmt::print("rings of {} KiB{:>25} {:>9} {:>6} {:>6}\n", ring_bytes / 1024, "TCP", "stream", "",
             "ratio");
  const Peer peer(ring_bytes, settings.pinned);
  for (const Row& row : rows) {
    const bool asked = std::string_view(row.name).find(settings.only) != std::string_view::npos;
    if (asked) measure(peer, row, settings.rounds);
  }
  count_idle(peer, settings.idle, settings.only);
}

}  // namespace
}  // namespace weft::bench

int main(int count, char** words) {
  CLI::App app("Byte streams against TCP sockets.");
  bool peer = false;
  std::uint32_t ring_bytes = 0;
  weft::bench::Settings settings;
  app.add_flag("--peer", peer, "be the other process; started by the first")->group("");
  app.add_option("--ring", ring_bytes, "bytes of the rings (both 32 KiB and 1 MiB)");
  app.add_option("--rounds", settings.rounds, "how often each is measured, in turn")
      ->capture_default_str();
  app.add_option("--effort", settings.effort, "more or less work in each round")
      ->capture_default_str();
  app.add_option("--idle", settings.idle, "how many idle connections are counted")
      ->check(CLI::Range(2, 100'000))
      ->capture_default_str();
  app.add_option("--only", settings.only, "the rows whose names contain this");
  app.add_flag("--pinned", settings.pinned, "each process has a processor of its own");
  CLI11_PARSE(app, count, words);
  try {
    if (settings.pinned) weft::bench::pin(peer ? 1 : 0);
    if (peer) weft::bench::be_peer(ring_bytes);
    std::vector<std::uint32_t> sizes{32 * 1024, 1024 * 1024};
    if (ring_bytes != 0) sizes = {ring_bytes};
    for (const std::uint32_t bytes : sizes) weft::bench::run(bytes, settings);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "stream_bench: {}\n", error.what());
    return 1;
  }
}
