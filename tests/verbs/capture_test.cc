// Captures that a program starts and stops, read by the analysis of captures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "weft/capture.hpp"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

using capture::Operation;
using ::testing::HasSubstr;

constexpr std::chrono::seconds timeout{30};

struct Seen : capture::OperationSink {
  void on_operation(const Operation& operation) override {
    ++operations;
    const bool is_complete = operation.outcome == Operation::Outcome::complete;
    if (is_complete) ++complete;
    if (operation.kind == Operation::Kind::send) ++sends;
    // Control words between two devices of Weft (docs/dissect.md): without the handshake they are
    // Writes.
    constexpr std::uint64_t control_bytes = 16;
    if (operation.kind != Operation::Kind::write || operation.bytes <= control_bytes) return;
    written += operation.bytes;
    ++(is_complete ? writes : cut_writes);
  }
  std::uint64_t operations = 0;
  std::uint64_t complete = 0;
  std::uint64_t sends = 0;
  std::uint64_t writes = 0;      // that are complete
  std::uint64_t cut_writes = 0;  // others
  std::uint64_t written = 0;     // bytes
  std::uint64_t frames = 0;
  capture::CaptureQuality quality;
};

Seen analysed(const std::string& path) {
  Seen seen;
  capture::Analysis analysis;
  capture::QualityMeter meter(analysis);
  analysis.add_sink(meter);
  analysis.add_operations(seen);
  const auto source = capture::open_capture(path);
  capture::RawPacket packet;
  while (source->next(packet)) analysis.add(packet);
  EXPECT_EQ(source->problem() + source->leftover(), "");
  analysis.finish();
  seen.frames = analysis.totals().frames;
  seen.quality = meter.quality();
  return seen;
}

// The bytes of the two streams of one TCP connection over IPv4 that lie between others and are not
// in the file. The analysis cannot tell them from an FPDU that has begun before the capture.
std::int64_t missing_between(const std::string& path) {
  struct Stream {
    std::uint32_t first = 0;
    std::map<std::int64_t, std::int64_t> parts;  // begin to end, from `first` on
  };
  std::map<unsigned, Stream> streams;  // by source port
  const auto source = capture::open_capture(path);
  capture::RawPacket packet;
  while (source->next(packet)) {
    const auto at = [&](std::size_t index) {
      return std::to_integer<std::uint32_t>(packet.bytes[index]);
    };
    constexpr std::size_t ip = 14;
    const std::size_t tcp = ip + 4 * (at(ip) & 15);
    const std::size_t payload = tcp + 4 * (at(tcp + 12) >> 4);
    const std::uint32_t sequence =
        at(tcp + 4) << 24 | at(tcp + 5) << 16 | at(tcp + 6) << 8 | at(tcp + 7);
    const auto length = static_cast<std::int64_t>(packet.bytes.size() - payload);
    if (length == 0) continue;
    const auto [found, made] = streams.try_emplace(at(tcp) << 8 | at(tcp + 1));
    Stream& stream = found->second;
    if (made) stream.first = sequence;
    const std::int64_t begin = static_cast<std::int32_t>(sequence - stream.first);
    stream.parts[begin] = begin + length;
  }
  std::int64_t missing = 0;
  for (const auto& [port, stream] : streams) {
    std::int64_t end = stream.parts.begin()->first;
    for (const auto& [from, to] : stream.parts) {
      missing += std::max<std::int64_t>(from - end, 0);
      end = std::max(end, to);
    }
  }
  return missing;
}

PreparedQueuePair built(const ProtectionDomain& domain, const CompletionQueue& queue) {
  return domain.queue_pair(queue, queue)
      .max_send_requests(32)
      .max_receive_requests(32)
      .access(Access::all)
      .build();
}

// A device of its own with a queue pair.
struct End {
  explicit End(const DeviceOptions& options)
      : context(open_own_device(options)),
        domain(context.create_domain()),
        queue(context.create_completion_queue(64)),
        region(domain.allocate<char>(std::size_t{1} << 20, Access::all)),
        prepared(built(domain, queue)) {}

  void await() {
    const Deadline deadline = timeout;
    std::array<Completion, 1> completions;
    while (!deadline.passed()) {
      const auto got = queue.poll(completions);
      if (got.empty()) continue;
      ASSERT_TRUE(got[0].ok()) << got[0].status_name();
      return;
    }
    FAIL() << "no completion";
  }

  Context context;
  ProtectionDomain domain;
  CompletionQueue queue;
  TypedRegion<char> region;
  PreparedQueuePair prepared;
  std::optional<QueuePair> connected;
};

class Captures : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "weft-captures-" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const char* name = "a.pcapng") const {
    return folder_ + "/" + name;
  }
  static DeviceOptions over_tcp() {
    return {.address = "127.0.0.1", .same_host = DeviceOptions::SameHost::off};
  }
  void connect(End& a, End& b) {
    const auto of_a = a.prepared.endpoint();
    a.connected.emplace(std::move(a.prepared).handshake(b.prepared.endpoint()));
    b.connected.emplace(std::move(b.prepared).handshake(of_a));
  }
  static void write(End& from, End& to, std::size_t bytes, int count = 1) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(from.connected->post_write(from.region.slice(0, bytes), to.region.remote(), 1), 0);
      from.await();
    }
  }
  static void send(End& from, End& to, std::size_t bytes) {
    ASSERT_EQ(to.connected->post_receive(to.region.slice(), 2), 0);
    ASSERT_EQ(from.connected->post_send(from.region.slice(0, bytes), 3), 0);
    from.await();
    to.await();
  }

  std::string folder_;
};

TEST_F(Captures, OfAWholeConnectionHasEachOperation) {
  End a(over_tcp());
  End b(over_tcp());
  Capture capture = start_capture(a.context, path());
  EXPECT_EQ(capture.path(), path());
  connect(a, b);
  write(a, b, 1000, 3);
  send(a, b, 100);
  send(b, a, 10);
  capture.stop();
  const auto status = capture.status();
  EXPECT_FALSE(status.running);
  EXPECT_EQ(status.packets_lost, 0U);
  EXPECT_EQ(status.unseen_connections, 0U);
  const Seen seen = analysed(path());
  EXPECT_EQ(seen.frames, status.packets);
  EXPECT_EQ(seen.written, 3000U);
  EXPECT_EQ(seen.sends, 2U);
  EXPECT_EQ(seen.complete, seen.operations);
  EXPECT_EQ(seen.quality.begun_before, 0U);
}

// The other end is a device of its own as well, and is not in the capture. Of the first message the
// analysis cannot know that it begins with the capture. Empty Reads, by which the device asks
// whether Writes are placed, have no answer that is theirs for certain.
TEST_F(Captures, MayBeginWhileConnectionsExist) {
  End a(over_tcp());
  End b(over_tcp());
  connect(a, b);
  write(a, b, 70'000, 3);
  send(b, a, 10);
  Capture capture = start_capture(a.context, path());
  write(a, b, 1000, 5);
  write(b, a, 200'000, 2);
  send(a, b, 100);
  send(b, a, 10);
  capture.stop();
  const Seen seen = analysed(path());
  EXPECT_EQ(seen.written, 5 * 1000U + 2 * 200'000U);
  EXPECT_EQ(seen.sends, 2U);
  EXPECT_GE(seen.writes, 6U);
  EXPECT_EQ(seen.writes + seen.cut_writes, 7U);
  EXPECT_EQ(seen.quality.begun_before, 1U);
  EXPECT_EQ(seen.quality.missing_bytes, 0U);
}

TEST_F(Captures, EndAtOnceAndCanBeginAgain) {
  End a(over_tcp());
  End b(over_tcp());
  connect(a, b);
  {
    const Capture first = start_capture(a.context, path());
    write(a, b, 500);
    EXPECT_TRUE(first.status().running);
  }
  const auto size = std::filesystem::file_size(path());
  write(a, b, 5000);
  EXPECT_EQ(std::filesystem::file_size(path()), size);
  const Capture second = start_capture(a.context, path("b.pcapng"));
  write(a, b, 700);
  EXPECT_EQ(std::filesystem::file_size(path()), size);
  EXPECT_EQ(analysed(path()).written, 500U);
  EXPECT_EQ(analysed(path("b.pcapng")).written, 700U) << "complete while it is written";
}

TEST_F(Captures, GoToAFunctionAsToAFile) {
  End a(over_tcp());
  End b(over_tcp());
  std::vector<std::byte> bytes;
  std::size_t calls = 0;
  Capture capture = start_capture(a.context, [&](std::span<const std::byte> blocks) {
    ++calls;
    bytes.insert(bytes.end(), blocks.begin(), blocks.end());
  });
  EXPECT_EQ(calls, 1U) << "section and interface";
  EXPECT_EQ(capture.path(), "");
  connect(a, b);
  write(a, b, 70'000, 2);
  capture.stop();
  const std::size_t ended = calls;
  write(a, b, 100);
  EXPECT_EQ(calls, ended);
  std::ofstream(path(), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  const Seen seen = analysed(path());
  EXPECT_EQ(seen.written, 140'000U);
  EXPECT_EQ(seen.frames, capture.status().packets);
}

TEST_F(Captures, OfADeviceAreOneAtATime) {
  const Context device = open_own_device(over_tcp());
  Capture first = start_capture(device, path());
  try {
    (void)start_capture(device, path("b.pcapng"));
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EBUSY);
    EXPECT_THAT(error.what(), HasSubstr(path()));
  }
  EXPECT_FALSE(std::filesystem::exists(path("b.pcapng")));
  const Context other = open_own_device(over_tcp());
  const Capture of_other = start_capture(other, path("b.pcapng"));
  first.stop();
  first.stop();
  EXPECT_NO_THROW((void)start_capture(device, path("c.pcapng")));
  DeviceOptions options = over_tcp();
  options.capture = path("d.pcapng");
  const Context from_the_beginning = open_own_device(options);
  EXPECT_THROW((void)start_capture(from_the_beginning, path("e.pcapng")), Error);
}

TEST_F(Captures, AreStoppedByAssignmentAsWell) {
  const Context device = open_own_device(over_tcp());
  const Context other = open_own_device(over_tcp());
  Capture capture = start_capture(device, path());
  capture = start_capture(other, path("b.pcapng"));
  EXPECT_NO_THROW((void)start_capture(device, path("c.pcapng")));
  const Capture moved = std::move(capture);
  // NOLINTNEXTLINE(bugprone-use-after-move): what an empty handle does is the test.
  EXPECT_THROW(capture.stop(), std::logic_error);
}

TEST_F(Captures, ThatCannotBeWrittenAreErrors) {
  const Context device = open_own_device(over_tcp());
  try {
    (void)start_capture(device, folder_ + "/none/a.pcapng");
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("/none/a.pcapng"));
  }
  EXPECT_THROW((void)start_capture(device, CaptureFunction()), std::invalid_argument);
  EXPECT_NO_THROW((void)start_capture(device, path()));
}

TEST_F(Captures, EndWhereTheirFunctionThrows) {
  std::mutex mutex;
  std::string logged;
  set_log([&](LogLevel, std::string_view message, std::string_view object) {
    const std::lock_guard lock(mutex);
    if (object == "capture") logged = message;
  });
  End a(over_tcp());
  End b(over_tcp());
  int calls = 0;
  const Capture capture = start_capture(a.context, [&](std::span<const std::byte>) {
    if (++calls > 3) throw std::runtime_error("the disk is full");
  });
  connect(a, b);
  write(a, b, 100, 5);
  set_log({});
  EXPECT_EQ(calls, 4);
  EXPECT_FALSE(capture.status().running);
  EXPECT_GT(capture.status().packets_lost, 0U);
  EXPECT_THAT(logged, HasSubstr("the disk is full"));
  EXPECT_NO_THROW((void)start_capture(a.context, path())) << "it made room";
}

TEST_F(Captures, AreNotStoppedByTheirOwnFunction) {
  End a(over_tcp());
  End b(over_tcp());
  std::optional<Capture> capture;
  int refused = 0;
  capture.emplace(start_capture(a.context, [&](std::span<const std::byte>) {
    if (!capture) return;
    try {
      capture->stop();
    } catch (const Error& error) {
      refused = error.error_number();
    }
  }));
  connect(a, b);
  write(a, b, 100);
  EXPECT_EQ(refused, EDEADLK);
  EXPECT_TRUE(capture->status().running);
}

// Two ends of one device, each in its own thread, while captures begin and end: no byte between
// the first one and the last one of a capture is missing, once what was on its way has arrived.
TEST_F(Captures, LackNothingWhereverTheyBegin) {
  const Context device = open_own_device(over_tcp());
  const auto domain = device.create_domain();
  struct Side {
    explicit Side(const Context& context, const ProtectionDomain& owner)
        : queue(context.create_completion_queue(64)),
          region(owner.allocate<char>(std::size_t{1} << 20, Access::all)),
          prepared(built(owner, queue)) {}
    CompletionQueue queue;
    TypedRegion<char> region;
    PreparedQueuePair prepared;
    std::optional<QueuePair> connected;
  };
  Side a(device, domain);
  Side b(device, domain);
  const auto of_a = a.prepared.endpoint();
  a.connected.emplace(std::move(a.prepared).handshake(b.prepared.endpoint()));
  b.connected.emplace(std::move(b.prepared).handshake(of_a));
  std::atomic<bool> failed{false};
  const auto traffic = [&](const std::stop_token& stop, Side& from, Side& to, std::size_t bytes) {
    std::array<Completion, 8> completions;
    int posted = 0;
    while (!stop.stop_requested() && !failed) {
      while (posted < 4) {
        if (from.connected->post_write(from.region.slice(0, bytes), to.region.remote(), 1) != 0) {
          failed = true;
        }
        ++posted;
      }
      for (const Completion& done : from.queue.poll(completions)) {
        if (!done.ok()) failed = true;
        --posted;
      }
    }
  };
  std::jthread forth(traffic, std::ref(a), std::ref(b), 300'000);
  std::jthread back(traffic, std::ref(b), std::ref(a), 5'000);
  const auto await_writes = [&](std::uint64_t count) {
    const Deadline deadline = timeout;
    for (const Side* side : {&a, &b}) {
      const auto done = [&] {
        return side->connected->counters().send_completions[IBV_WC_SUCCESS];
      };
      const std::uint64_t enough = done() + count;
      while (done() < enough && !deadline.passed() && !failed) std::this_thread::yield();
    }
  };
  await_writes(10);
  for (int round = 0; round < 5; ++round) {
    Capture capture = start_capture(device, path());
    await_writes(20);
    capture.stop();
    const Seen seen = analysed(path());
    EXPECT_GT(seen.writes, 4U);
    EXPECT_LE(seen.cut_writes, 4U) << "the first and the last one of each direction";
    EXPECT_EQ(missing_between(path()), 0);
    EXPECT_EQ(seen.quality.begun_before, 1U);
  }
  forth.request_stop();
  back.request_stop();
  forth.join();
  back.join();
  EXPECT_FALSE(failed);
}

TEST_F(Captures, HaveQueuePairsThatAreConnectedToThemselves) {
  const Context device = open_own_device(over_tcp());
  const auto domain = device.create_domain();
  const auto queue = device.create_completion_queue(16);
  auto region = domain.allocate<char>(100'000, Access::all);
  auto prepared = built(domain, queue);
  const auto own = prepared.endpoint();
  const auto itself = std::move(prepared).handshake(own);
  const auto write = [&](std::size_t bytes) {
    ASSERT_EQ(itself.post_write(region.slice(0, bytes), region.remote().slice(50'000, 50'000), 1),
              0);
    std::array<Completion, 1> completions;
    ASSERT_EQ(queue.wait(completions, timeout).size(), 1U);
    ASSERT_TRUE(completions[0].ok());
  };
  write(40'000);
  Capture capture = start_capture(device, path());
  write(30'000);
  write(100);
  capture.stop();
  const Seen seen = analysed(path());
  EXPECT_EQ(seen.written, 30'100U);
}

// Within one process and one device the two ends leave TCP.
TEST_F(Captures, CountTheConnectionsThatTheyCannotHave) {
  DeviceOptions options{.address = "127.0.0.1"};
  End a(options);
  End b(options);
  connect(a, b);
  write(a, b, 100);
  send(a, b, 10);
  const Capture late = start_capture(a.context, path());
  write(a, b, 100);
  const auto status = late.status();
  if (status.unseen_connections == 0) {
    EXPECT_GT(status.packets, 0U) << "this machine does not let them leave TCP";
    GTEST_SKIP() << "connections within this host stay on TCP";
  }
  EXPECT_EQ(status.unseen_connections, 1U);
  EXPECT_EQ(status.packets, 0U);
  End c(options);
  End d(options);
  const Capture early = start_capture(c.context, path("b.pcapng"));
  connect(c, d);
  write(c, d, 100);
  EXPECT_EQ(early.status().unseen_connections, 0U);
  EXPECT_EQ(analysed(path("b.pcapng")).written, 100U);
}

TEST_F(Captures, OfTheSharedDeviceNeedNoContext) {
  setenv("WEFT_ADDR", "127.0.0.1", 1);
  Capture capture = start_capture(path());
  const Context context = open_device({}, Backend::embedded);
  EXPECT_THROW((void)start_capture(context, [](std::span<const std::byte>) {}), Error);
  capture.stop();
  EXPECT_GT(std::filesystem::file_size(path()), 0U);
}

TEST_F(Captures, EndInAChildOfFork) {
  End a(over_tcp());
  End b(over_tcp());
  connect(a, b);
  Capture capture = start_capture(a.context, path());
  write(a, b, 100);
  const pid_t child = fork();
  if (child == 0) {
    const bool ended = !capture.status().running;
    capture.stop();
    _exit(ended ? 0 : 1);
  }
  int how = -1;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  write(a, b, 100);
  EXPECT_TRUE(capture.status().running);
  capture.stop();
  EXPECT_EQ(analysed(path()).written, 200U);
}

}  // namespace
}  // namespace weft::verbs
