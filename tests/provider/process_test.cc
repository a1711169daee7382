// The one device of a process: built at its first use, with a clear reason if that fails, and made
// anew after fork.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/own_sockets.h"
#include "device/settings.h"
#include "device/system.h"
#include "provider/connected_pair.h"
#include "provider/environment.h"
#include "provider/options.h"

namespace weft::provider {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Environment, WrongValuesNameVariableValueAndWhatIsAllowed) {
  EXPECT_EQ(check_variable("WEFT_PROGRESS", "fast"),
            "WEFT_PROGRESS=fast: must be auto, thread or manual");
  EXPECT_EQ(check_variable("WEFT_ACK", "yes"), "WEFT_ACK=yes: must be 0 or 1");
  EXPECT_THAT(check_variable("WEFT_PORT_OFFSET", "65536"), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(check_variable("WEFT_PORT_OFFSET", "-1"), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(check_variable("WEFT_ADDR", "localhost"), HasSubstr("numeric IP address"));
  EXPECT_THAT(check_variable("WEFT_PERSONALITY", "opa"), HasSubstr("must be roce, iwarp or ib"));
  EXPECT_THAT(check_variable("WEFT_NONE", "1"), HasSubstr("no such variable"));
}

TEST(Environment, RightValuesAreSet) {
  setenv("WEFT_ADDR", "::1", 1);
  setenv("WEFT_ACK", "0", 1);
  setenv("WEFT_CRC", "0", 1);
  setenv("WEFT_CRC_STRICT", "0", 1);
  setenv("WEFT_CAPTURE", "/tmp/x.pcapng", 1);
  setenv("WEFT_GIDS", "all", 1);
  setenv("WEFT_PERSONALITY", "iwarp", 1);
  setenv("WEFT_PORT_OFFSET", "1000", 1);
  setenv("WEFT_PRIORITY", "-7", 1);
  setenv("WEFT_PROGRESS", "thread", 1);
  device::Settings settings;
  EXPECT_THAT(read_environment(settings), IsEmpty());
  EXPECT_EQ(settings.address, "::1");
  EXPECT_FALSE(settings.acknowledge);
  EXPECT_FALSE(settings.crc);
  EXPECT_FALSE(settings.strict_crc);
  EXPECT_EQ(settings.capture_path, "/tmp/x.pcapng");
  EXPECT_EQ(settings.gids, device::GidTable::all);
  EXPECT_EQ(settings.personality, device::Personality::iwarp);
  EXPECT_EQ(settings.port_offset, 1000);
  EXPECT_EQ(settings.progress.priority, -7);
  EXPECT_EQ(settings.progress.mode, device::ProgressMode::thread);
}

// As the device gets it, from the environment alone and by way of the options of a program.
device::OwnMemory own_memory_with(const char* directly, const char* checks) {
  setenv("WEFT_OWN_MEMORY", directly, 1);
  setenv("WEFT_CHECK", checks, 1);
  device::Settings settings;
  EXPECT_THAT(read_environment(settings), IsEmpty());
  DeviceOptions options;
  EXPECT_THAT(read_environment(options), IsEmpty());
  unsetenv("WEFT_OWN_MEMORY");
  unsetenv("WEFT_CHECK");
  device::Settings again;
  EXPECT_TRUE(to_settings(options, again).sentence.empty());
  EXPECT_EQ(again.reach.own(), settings.reach.own());
  EXPECT_EQ(again.reach.own_memory, settings.reach.own_memory);
  return settings.reach.own();
}

TEST(Environment, ChecksOfTheProgramSeeNoStoreOfAPeer) {
  using enum device::OwnMemory;
  EXPECT_EQ(device::Settings().reach.own(), directly);
  EXPECT_EQ(own_memory_with("1", "0"), directly);
  EXPECT_EQ(own_memory_with("0", "0"), shared);
  EXPECT_EQ(own_memory_with("1", "1"), unseen);
  EXPECT_EQ(own_memory_with("0", "fatal"), unseen);
}

void expect_limits(const device::Settings& settings) {
  EXPECT_EQ(settings.strangers.half_open, 64U);
  EXPECT_EQ(settings.strangers.refused, 32U);
  EXPECT_EQ(settings.strangers.first_byte_ns, 1'000'000'000U);
  EXPECT_EQ(settings.strangers.handshake_ns, 1'500'000'000U);
  EXPECT_EQ(settings.min_retry_time_ns, 5'000'000'000U);
  EXPECT_EQ(settings.hold_bytes, 65536U);
}

TEST(Environment, LimitsOfWhatPeersCanMakeTheDeviceHoldAreSet) {
  setenv("WEFT_LIMITS",
         "half_open=64, refused=32,first_byte=1s,handshake=1500ms,unanswered=5s,hold_bytes=64KiB",
         1);
  device::Settings settings;
  EXPECT_THAT(read_environment(settings), IsEmpty());
  DeviceOptions options;
  EXPECT_THAT(read_environment(options), IsEmpty());
  unsetenv("WEFT_LIMITS");
  expect_limits(settings);
  // Programs that change single options by code keep the user's limits.
  device::Settings again;
  EXPECT_TRUE(to_settings(options, again).sentence.empty());
  expect_limits(again);
}

TEST(Environment, WrongLimitsSayWhatIsAccepted) {
  const auto wrong = [](const char* list) { return check_variable("WEFT_LIMITS", list); };
  EXPECT_THAT(wrong("places=4"), HasSubstr("must be one of half_open=, refused="));
  EXPECT_THAT(wrong("half_open=3"), HasSubstr("half_open= must be a number from 4 to 65536"));
  EXPECT_THAT(wrong("refused=70000"), HasSubstr("refused= must be a number from 4 to 65536"));
  EXPECT_THAT(wrong("first_byte=3"), HasSubstr("first_byte= must be a time from 1ms to 3600s"));
  EXPECT_THAT(wrong("handshake=2us"), HasSubstr("handshake= must be a time from 1ms to 3600s"));
  EXPECT_THAT(wrong("unanswered=3601s"), HasSubstr("must be a time from 1ms to 3600s"));
  EXPECT_THAT(wrong("hold_bytes=2GiB"), HasSubstr("must be a number of bytes up to 1GiB"));
  EXPECT_THAT(wrong("half_open"), HasSubstr("half_open"));
}

// Whether the default of a variable is a description instead of one of its values.
bool has_no_standard_value(const Variable& variable) {
  constexpr std::array names{"WEFT_ADAPTER",  "WEFT_ADDR",   "WEFT_CAPTURE", "WEFT_CHECK_STATUS",
                             "WEFT_FAULT",    "WEFT_GIDS",   "WEFT_LIMITS",  "WEFT_LINK",
                             "WEFT_PRIORITY", "WEFT_REQUIRE"};
  return std::ranges::find(names, variable.name) != names.end();
}

TEST(Environment, TheTableSaysWhatHolds) {
  const device::Settings standard;
  for (const Variable& variable : variables()) {
    SCOPED_TRACE(variable.name);
    EXPECT_FALSE(variable.meaning.empty());
    device::Settings settings;
    if (has_no_standard_value(variable)) continue;
    EXPECT_TRUE(variable.read(variable.standard, settings));
    EXPECT_EQ(settings.acknowledge, standard.acknowledge);
    EXPECT_EQ(settings.crc, standard.crc);
    EXPECT_EQ(settings.strict_crc, standard.strict_crc);
    EXPECT_EQ(settings.personality, standard.personality);
    EXPECT_EQ(settings.port_offset, standard.port_offset);
    EXPECT_EQ(settings.progress.mode, standard.progress.mode);
  }
}

TEST(Process, WithoutADeviceTheReasonIsSaidOnce) {
  setenv("WEFT_ADDR", "192.0.2.255", 1);
  int count = -1;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(embedded().get_device_list(&count), nullptr);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(embedded().get_device_list(nullptr), nullptr);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "weft: the device's address (WEFT_ADDR) 192.0.2.255 is not an address of this host; "
            "`ip -brief address` lists them\n");
  // The error can be corrected.
  setenv("WEFT_ADDR", "127.0.0.1", 1);
  ibv_device** list = embedded().get_device_list(&count);
  EXPECT_EQ(count, 1);
  embedded().free_device_list(list);
}

TEST(Process, TheLineAtTheStartIsSaidOnce) {
  setenv("WEFT_ADDR", "127.0.0.1", 1);
  unsetenv("WEFT_QUIET");
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) embedded().free_device_list(embedded().get_device_list(nullptr));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "weft: weft0 (embedded iWARP device, seen as RoCE, 127.0.0.1) serves this program\n");
}

class Fork : public testing::ConnectedPair {
 protected:
  // Runs `child` in a child process. Returns its result.
  template <typename Function>
  static bool in_child(Function child) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      _exit(child() ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
};

TEST_F(Fork, TheChildStartsAfresh) {
  connect();
  EXPECT_TRUE(in_child([&] {
    ibv_device** list = table_.get_device_list(nullptr);
    if (!list) return false;
    ibv_context* context = table_.open_device(list[0]);
    ibv_context* by_old_name = table_.open_device(active_.id->verbs->device);
    if (!context || !by_old_name) return false;
    ibv_pd* pd = table_.alloc_pd(context);
    return pd && table_.dealloc_pd(pd) == 0 && table_.close_device(context) == 0;
  }));
}

// A peer learns of the end of this process only when no child holds its connection any more. A
// socket that is just handed from one object of the device to another has no owner.
TEST_F(Fork, TheChildHoldsNoSocketThatHasNoOwner) {
  connect();
  namespace sys = device::sys;
  const sys::Descriptor socket(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(socket.valid());
  EXPECT_TRUE(in_child([&] { return fcntl(socket.get(), F_GETFD) == -1 && errno == EBADF; }));
  EXPECT_NE(fcntl(socket.get(), F_GETFD), -1);  // it is the copy that was closed
}

// What the program opens under a number that the device had before is not closed. The number is a
// high one, which no other thread gets meanwhile.
TEST_F(Fork, TheChildKeepsWhatTheProgramHasOpened) {
  connect();
  constexpr int high = 500;
  device::sys::Descriptor of_device(fcntl(STDERR_FILENO, F_DUPFD, high));
  const int number = of_device.get();
  own_sockets::add(number);
  of_device.reset();
  const int file = fcntl(STDERR_FILENO, F_DUPFD, high);
  ASSERT_EQ(file, number);
  EXPECT_TRUE(in_child([&] { return fcntl(file, F_GETFD) != -1; }));
  close(file);
}

// The parent's objects can be destroyed in the child, but not used.
TEST_F(Fork, WhatWasMadeBeforeCannotBeChangedInTheChild) {
  connect();
  EXPECT_TRUE(in_child([&] {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_qp* const qp = active_.id->qp;
    if (table_.modify_qp(qp, &attributes, IBV_QP_STATE) != ENODEV) return false;
    if (table_.query_qp(qp, &attributes, IBV_QP_STATE, &initial) != ENODEV) return false;
    errno = 0;
    const int result = table_.rereg_mr(active_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                       IBV_ACCESS_LOCAL_WRITE);
    if (result != IBV_REREG_MR_ERR_INPUT || errno != ENODEV) return false;
    errno = 0;
    return !table_.reg_dmabuf_mr(active_.pd, 0, 4096, 0, -1, 0) && errno == ENODEV;
  }));
  // The connection of the parent still works.
  EXPECT_EQ(passive_.post_receive(), 0);
  EXPECT_EQ(active_.post_send(), 0);
  EXPECT_EQ(active_.await_completion().status, IBV_WC_SUCCESS);
}

TEST_F(Fork, WhatWasMadeBeforeClosesQuietlyAndLeavesTheParentAlone) {
  connect();
  EXPECT_TRUE(in_child([&] {
    if (table_.alloc_pd(active_.id->verbs)) return false;
    table_.id_destroy_qp(active_.id);
    return table_.destroy_cq(active_.cq) == 0 && table_.dereg_mr(active_.mr) == 0 &&
           table_.dealloc_pd(active_.pd) == 0 && table_.destroy_id(active_.id) == 0;
  }));
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  EXPECT_EQ(active_.await_completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(passive_.await_completion().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace weft::provider
