// The end of a program that is checked.
#include "check/exit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "check/checker.h"
#include "check/table.h"

namespace weft::check {
namespace {

// As where a signal interrupts a call of verbs and its handler calls exit(3): this thread holds a
// lock of the checks, and will never release it.
TEST(Exit, InTheMiddleOfACallWaitsForNoLock) {
  EXPECT_EXIT(
      {
        alarm(60);  // ends a test that waits
        setenv("WEFT_CHECK", "1", 1);
        const provider::Table device{};
        (void)with_checks(device);
        checker().early_accesses.before_fork();
        check_exit();
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "interrupted a call of verbs");
}

}  // namespace
}  // namespace weft::check
