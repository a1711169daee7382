// The embedded device configured by code, several devices in one process, and the sink of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::chrono::seconds timeout{30};

struct Record {
  LogLevel level;
  std::string message;
  std::string object;
};

// Collects what the library would print.
class Collected {
 public:
  Collected() {
    set_log([this](LogLevel level, std::string_view message, std::string_view object) {
      const std::lock_guard lock(mutex_);
      records_.push_back({level, std::string(message), std::string(object)});
    });
  }
  ~Collected() { set_log({}); }
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;

  [[nodiscard]] std::vector<Record> records() {
    const std::lock_guard lock(mutex_);
    return records_;
  }

 private:
  std::mutex mutex_;
  std::vector<Record> records_;
};

// One queue pair on a device of its own.
struct End {
  explicit End(const DeviceOptions& options)
      : context(open_own_device(options)),
        domain(context.create_domain()),
        queue(context.create_completion_queue(16)),
        region(domain.allocate<char>(64, Access::all)),
        prepared(domain.queue_pair(queue, queue).build()) {}

  void connect(const verbs::Endpoint& peer) {
    connected.emplace(std::move(prepared).handshake(peer));
  }
  [[nodiscard]] bool await() {
    const Deadline deadline = timeout;
    std::array<Completion, 1> completions;
    while (!deadline.passed()) {
      const auto got = queue.poll(completions);
      if (!got.empty()) return got[0].ok();
    }
    return false;
  }

  Context context;
  ProtectionDomain domain;
  CompletionQueue queue;
  TypedRegion<char> region;
  PreparedQueuePair prepared;
  std::optional<QueuePair> connected;
};

// Before anything else of this process uses the device, so it is one test.
TEST(Configure, TheDeviceOfTheProcessTakesItsOptionsFromCode) {
  setenv("WEFT_PERSONALITY", "roce", 1);
  unsetenv("WEFT_QUIET");
  Collected collected;
  const auto number_of = [](const DeviceOptions& options) {
    try {
      configure(options);
    } catch (const Error& error) {
      return error.error_number();
    }
    return 0;
  };
  EXPECT_EQ(number_of({.faults = "no such rule"}), EINVAL);
  EXPECT_EQ(number_of({.personality = DeviceOptions::Personality::roce}), 0);
  EXPECT_EQ(number_of({.address = "192.0.2.77"}), 0) << "whether it is here is seen at the use";
  // The error itself has the reason and the next step.
  const auto reason_of = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.error_number(), ENODEV);
      return std::string(error.what());
    }
    return std::string();
  };
  for (const std::string& reason : {reason_of([] { (void)devices(Backend::embedded); }),
                                    reason_of([] { (void)open_device({}, Backend::embedded); }),
                                    reason_of([] { (void)Id(EventChannel(Backend::embedded)); })}) {
    EXPECT_THAT(reason, ::testing::AllOf(::testing::HasSubstr("192.0.2.77"),
                                         ::testing::HasSubstr("ip -brief address")));
  }
  const DeviceOptions wanted{.address = "127.0.0.1",
                             .personality = DeviceOptions::Personality::iwarp};
  EXPECT_EQ(number_of(wanted), 0) << "until the first use it may change";
  ::testing::internal::CaptureStderr();
  const auto all = devices(Backend::embedded);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].transport(), IBV_TRANSPORT_IWARP);
  EXPECT_EQ(number_of(wanted), EBUSY);
  const auto records = collected.records();
  ASSERT_EQ(records.size(), 2U) << "the failure above, once, and the start";
  EXPECT_EQ(records[0].level, LogLevel::error);
  EXPECT_EQ(records[1].level, LogLevel::info);
  EXPECT_EQ(records[1].object, "weft0");
  EXPECT_THAT(records[1].message, ::testing::HasSubstr("127.0.0.1"));
}

TEST(Configure, DevicesOfOneProcessHaveTheirOwnOptions) {
  const std::string folder = ::testing::TempDir() + "weft-configure-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string capture = folder + "/capture.pcapng";
  const std::string statistics = folder + "/statistics.json";
  {
    DeviceOptions options{.address = "127.0.0.1", .crc = false, .capture = capture};
    End a(options);
    End b({.address = "127.0.0.1",
           .progress = DeviceOptions::Progress::thread,
           .acknowledge = false,
           .statistics = statistics});
    EXPECT_NE(a.context.device_name(), b.context.device_name());
    const auto of_a = a.prepared.endpoint();
    a.connect(b.prepared.endpoint());
    b.connect(of_a);
    a.region[0] = 'x';
    ASSERT_EQ(b.connected->post_receive(b.region.slice(), 1), 0);
    ASSERT_EQ(a.connected->post_send(a.region.slice(0, 1), 2), 0);
    EXPECT_TRUE(a.await());
    EXPECT_TRUE(b.await());
    EXPECT_EQ(b.region[0], 'x');
  }
  EXPECT_GT(std::filesystem::file_size(capture), 100U);
  EXPECT_GT(std::filesystem::file_size(statistics), 100U);
  std::filesystem::remove_all(folder);
}

TEST(Configure, AFaultOfOneDeviceDoesNotReachAnother) {
  const Context whole = open_own_device({.address = "127.0.0.1"});
  const Context faulty = open_own_device({.address = "127.0.0.1", .faults = "ENOMEM at reg-mr"});
  const auto domain = faulty.create_domain();
  EXPECT_THROW((void)domain.allocate<char>(64), Error);
  EXPECT_NO_THROW((void)whole.create_domain().allocate<char>(64));
}

TEST(Configure, ADeviceMayBeSmallerThanAnother) {
  const Context whole = open_own_device({.address = "127.0.0.1"});
  const Context small = open_own_device({.address = "127.0.0.1", .adapter = "max_qp=3,atomics=0"});
  EXPECT_EQ(small.query().max_qp, 3);
  EXPECT_GT(whole.query().max_qp, 3);
  EXPECT_THROW((void)open_own_device({.address = "127.0.0.1", .adapter = "max_qp=none"}), Error);
}

TEST(Configure, ThePriorityIsANiceValue) {
  EXPECT_NO_THROW((void)open_own_device({.address = "127.0.0.1", .priority = 19}));
  for (const int priority : {-21, 20}) {
    try {
      (void)open_own_device({.address = "127.0.0.1", .priority = priority});
      FAIL() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.error_number(), EINVAL);
      EXPECT_NE(std::string(error.what()).find("no nice value"), std::string::npos) << error.what();
    }
  }
}

TEST(Configure, ADeviceMayHaveASlowerNetwork) {
  const Context slow =
      open_own_device({.address = "127.0.0.1", .link = "latency=50us,rate=10gbit"});
  EXPECT_NO_THROW((void)slow.create_domain());
  try {
    (void)open_own_device({.address = "127.0.0.1", .link = "latency=soon"});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find("  latency=soon\n          ^"), std::string::npos)
        << error.what();
  }
}

TEST(Configure, ADeviceMayHaveAPortOfInfiniBand) {
  const Context context =
      open_own_device({.address = "127.0.0.1", .personality = DeviceOptions::Personality::ib});
  const auto port = context.query_port();
  EXPECT_FALSE(port.is_ethernet());
  EXPECT_EQ(port.lid(), 1U) << "of 127.0.0.1";
}

TEST(Configure, AWrongOptionIsNamed) {
  try {
    (void)open_own_device({.address = "192.0.2.77"});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ENODEV);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("192.0.2.77"));
    EXPECT_EQ(error.detail().attribute, "address");
  }
}

// What to do is in the Error and is not printed, too.
TEST(Configure, WhatAnErrorSaysIsNotLogged) {
  const auto context = open_own_device({});
  const verbs::EventChannel channel(context);
  const verbs::Id taken(channel);
  taken.bind({"127.0.0.1", 0});
  taken.listen(1);
  Collected collected;
  const verbs::Id id(channel);
  EXPECT_THROW(id.bind({"127.0.0.1", taken.local_port()}), Error);
  EXPECT_TRUE(collected.records().empty()) << collected.records()[0].message;
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(1);
  auto prepared = domain.queue_pair(queue, queue).build();
  verbs::Endpoint peer = prepared.endpoint();
  peer.gid.reset();
  EXPECT_THROW((void)std::move(prepared).handshake(peer), Error);
  EXPECT_TRUE(collected.records().empty()) << collected.records()[0].message;
}

TEST(Configure, OptionsCanComeFromTheEnvironment) {
  setenv("WEFT_CRC", "0", 1);
  setenv("WEFT_PERSONALITY", "iwarp", 1);
  setenv("WEFT_SAME_HOST", "off", 1);
  const DeviceOptions options = DeviceOptions::from_environment();
  EXPECT_FALSE(options.crc);
  EXPECT_TRUE(options.acknowledge);
  EXPECT_EQ(options.personality, DeviceOptions::Personality::iwarp);
  EXPECT_EQ(options.same_host, DeviceOptions::SameHost::off);
  setenv("WEFT_CRC", "perhaps", 1);
  EXPECT_THROW((void)DeviceOptions::from_environment(), Error);
  for (const char* name : {"WEFT_CRC", "WEFT_PERSONALITY", "WEFT_SAME_HOST"}) unsetenv(name);
}

}  // namespace
}  // namespace weft::verbs
