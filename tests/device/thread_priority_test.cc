// The nice value of the progress thread (WEFT_PRIORITY).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "device/engine.h"
#include "support/refuse.h"

namespace weft::device {
namespace {

using testing::HasSubstr;

// Says which nice value the thread has that calls it.
class Witness : public Pollable {
 public:
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override { nice_.set_value(getpriority(PRIO_PROCESS, 0)); }
  [[nodiscard]] int nice() { return nice_.get_future().get(); }

 private:
  std::promise<int> nice_;
};

int nice_of_progress_thread(std::optional<int> wanted) {
  Engine engine(ProgressMode::automatic, {.nice = wanted});
  const auto witness = std::make_shared<Witness>();
  engine.call_at(0, witness);
  return witness->nice();
}

// A higher nice value than one's own needs no permission.
TEST(ThreadPriority, IsThatOfTheProgressThreadAlone) {
  const int own = getpriority(PRIO_PROCESS, 0);
  ASSERT_LT(own, last_nice_value);
  testing::internal::CaptureStderr();
  EXPECT_EQ(nice_of_progress_thread(last_nice_value), last_nice_value);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), own);
}

TEST(ThreadPriority, IsThatOfTheProgramUnlessItIsSet) {
  EXPECT_EQ(nice_of_progress_thread(std::nullopt), getpriority(PRIO_PROCESS, 0));
}

TEST(ThreadPriority, ARefusalIsSaidAndEndsNothing) {
  const int own = getpriority(PRIO_PROCESS, 0);
  int nice = 0;
  testing::internal::CaptureStderr();
  const bool possible = test::run_without(
      {SYS_setpriority}, EPERM, [&] { nice = nice_of_progress_thread(first_nice_value); });
  const std::string said = testing::internal::GetCapturedStderr();
  if (!possible) GTEST_SKIP() << "this kernel filters no system calls (seccomp)";
  EXPECT_EQ(nice, own);
  EXPECT_THAT(said, HasSubstr("WEFT_PRIORITY=-20 was refused (Operation not permitted)"));
  EXPECT_THAT(said, HasSubstr("RLIMIT_NICE of at least 40"));
}

}  // namespace
}  // namespace weft::device
