// The file of a capture: which process writes it, what happens if it cannot be written, and fork().
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "capture_reader.h"
#include "capture_support.h"
#include "device/tap/capture_tap.h"

namespace weft::device {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

const auto local4 = address_of("127.0.0.1", 40'000);
const auto remote4 = address_of("127.0.0.1", 7471);

// Runs `body` in a child of fork(); its result is the exit status.
template <typename Body>
int in_child(Body body, pid_t* pid = nullptr) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  if (pid != nullptr) *pid = child;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

TEST_F(CaptureTest, ASecondWriterGetsAFileOfItsOwn) {
  const auto file = open(path());
  EXPECT_EQ(file->path(), path());
  const ConnectionTap tap(file, local4, remote4, true);
  pid_t child = 0;
  const int status = in_child(
      [&] {
        auto mine = CaptureFile::open(path());
        if (!mine || (*mine)->path() != path() + "." + std::to_string(::getpid())) return 1;
        const ConnectionTap other(*mine, remote4, local4, false);
        return 0;
      },
      &child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(read_capture(path()), SizeIs(3));
  EXPECT_THAT(read_capture(path() + "." + std::to_string(child)), SizeIs(6));
}

TEST_F(CaptureTest, TheNextRunStartsAnew) {
  {
    const auto file = open(path());
    const ConnectionTap tap(file, local4, remote4, true);
  }
  EXPECT_THAT(read_capture(path()), SizeIs(6));
  const auto file = open(path());
  EXPECT_EQ(file->path(), path());
  EXPECT_THAT(read_capture(path()), SizeIs(0));
}

TEST_F(CaptureTest, ErrorsNameThePathAndTheNextStep) {
  const auto bad = path("missing/x.pcapng");
  const auto file = CaptureFile::open(bad);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error(), HasSubstr(bad));
  EXPECT_THAT(file.error(), HasSubstr("No such file or directory"));
  EXPECT_THAT(file.error(), HasSubstr("name a file in a directory that exists"));
}

TEST_F(CaptureTest, DescriptorsAreNotInherited) {
  const auto file = open(path());
  const auto& own = std::filesystem::directory_iterator("/proc/self/fd");
  int found = 0;
  for (const auto& entry : own) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry, error) != path()) continue;
    const int descriptor = std::stoi(entry.path().filename());
    EXPECT_TRUE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    EXPECT_FALSE(::fcntl(descriptor, F_GETFL) & O_NONBLOCK);
    ++found;
  }
  EXPECT_EQ(found, 1);
}

TEST_F(CaptureTest, TheChildOfAForkWritesNothing) {
  const auto file = open(path());
  ConnectionTap tap(file, local4, remote4, true);
  const auto data = pattern(70'000);
  const iovec piece = piece_of(data);
  const int status = in_child([&] {
    file->forget_after_fork();
    tap.sent({&piece, 1}, data.size());
    return static_cast<int>(file->packets_lost());
  });
  EXPECT_EQ(status, 2);
  EXPECT_THAT(read_capture(path()), SizeIs(3));
  // The parent keeps its lock and continues to write.
  EXPECT_NE(open(path())->path(), path());
  tap.sent({&piece, 1}, data.size());
  EXPECT_THAT(read_capture(path()), SizeIs(5));
  EXPECT_EQ(file->packets_lost(), 0u);
}

TEST_F(CaptureTest, AFullFileEndsTheCaptureAndStaysReadable) {
  const auto body = [&] {
    const rlimit limit{100'000, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto file = open(path());
    ConnectionTap tap(file, local4, remote4, true);
    const auto data = pattern(60'000);
    const iovec piece = piece_of(data);
    for (int i = 0; i < 3; ++i) tap.sent({&piece, 1}, data.size());
    return static_cast<int>(file->packets_lost());
  };
  EXPECT_EQ(in_child(body), 2);  // and SIGXFSZ has not killed the process
  EXPECT_THAT(read_capture(path()), SizeIs(4));
}

TEST_F(CaptureTest, TheFailureIsSaidOnce) {
  testing::internal::CaptureStderr();
  {
    const auto file = open("/dev/full");
    ConnectionTap tap(file, local4, remote4, true);
    const auto data = pattern(10);
    const iovec piece = piece_of(data);
    tap.sent({&piece, 1}, data.size());
    EXPECT_EQ(file->packets_lost(), 4u);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "weft: the capture /dev/full ends here: No space left on device; what it holds can be "
            "read\n");
}

TEST_F(CaptureTest, AFifoNeedsAReaderAndMayLoseIt) {
  const auto fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto nobody = CaptureFile::open(fifo);
  ASSERT_FALSE(nobody);
  EXPECT_THAT(nobody.error(), HasSubstr("start its reader first"));

  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const auto file = open(fifo);
  ::close(reader);
  const ConnectionTap tap(file, local4, remote4, true);  // SIGPIPE would kill this test
  EXPECT_EQ(file->packets_lost(), 3u);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_FALSE(sigismember(&pending, SIGPIPE));
}

TEST_F(CaptureTest, ThreadsShareAFile) {
  const auto file = open(path());
  const auto data = pattern(5'000);
  const iovec piece = piece_of(data);
  std::vector<std::thread> threads;
  for (std::uint16_t port = 1; port <= 4; ++port) {
    threads.emplace_back([&, port] {
      ConnectionTap tap(file, address_of("127.0.0.1", port), remote4, true);
      for (int i = 0; i < 50; ++i) tap.sent({&piece, 1}, data.size());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(read_capture(path()), SizeIs(4 * (50 + 6)));
}

}  // namespace
}  // namespace weft::device
