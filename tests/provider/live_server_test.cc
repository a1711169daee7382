// What `weft top` asks for, while queue pairs and whole devices come and go: several threads, for
// the thread sanitizer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "live/socket_name.h"
#include "provider/connected_pair.h"
#include "provider/live_server.h"

namespace weft::provider {
namespace {

// The names on which this process listens; the last column of /proc/net/unix.
std::vector<std::string> own_names() {
  std::vector<std::string> names;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const std::size_t at = line.find(" @");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + 2);
    if (live::pid_of(name) == getpid()) names.push_back(name);
  }
  return names;
}

class Asker {
 public:
  explicit Asker(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    const auto address = live::address_of(name);
    (void)::connect(socket_, address.generic(), address.bytes);
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  // By the C library, which the thread sanitizer sees, as it sees connect(2). Otherwise it takes a
  // descriptor of the device that gets the same number for this one.
  ~Asker() { ::close(socket_); }

  // Whether the other end has closed the connection.
  [[nodiscard]] bool closed() const {
    pollfd entry{socket_, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }

  // Returns an empty text if the device was destroyed meanwhile.
  std::string ask() {
    std::string answer;
    if (::send(socket_, "?", 1, MSG_NOSIGNAL) != 1) return {};
    std::array<char, 4096> part{};
    while (answer.empty() || answer.back() != '\0') {
      const ssize_t got = ::recv(socket_, part.data(), part.size(), 0);
      if (got <= 0) return {};
      answer.append(part.data(), static_cast<std::size_t>(got));
    }
    answer.pop_back();
    return answer;
  }

 private:
  int socket_;
};

class Live : public testing::ConnectedPair {
 protected:
  void exchange() {
    ASSERT_EQ(passive_.post_receive(), 0);
    ASSERT_EQ(active_.post_send(), 0);
    ASSERT_EQ(active_.await_completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(passive_.await_completion().status, IBV_WC_SUCCESS);
  }
  // The device goes with its last object.
  void end() {
    destroy();
    active_ = {};
    passive_ = {};
  }
};

// Each connection of an asker takes latencies while it lasts, so these come and go as well.
TEST_F(Live, AnswersWhileDevicesWorkComeAndGo) {
  constexpr int wanted = 200;
  std::atomic<int> answers{0};
  const auto ask = [&answers](int times) {
    while (answers < wanted) {
      const auto names = own_names();
      if (names.empty()) continue;
      Asker asker(names.front());
      for (int i = 0; i < times; ++i) {
        const std::string answer = asker.ask();
        if (answer.empty()) break;
        EXPECT_TRUE(answer.starts_with("{") && answer.ends_with("}\n")) << answer;
        EXPECT_NE(answer.find("queue_pairs"), std::string::npos) << answer;
        ++answers;
      }
    }
  };
  std::vector<std::thread> askers;
  for (const int times : {1, 2}) askers.emplace_back(ask, times);
  while (answers < wanted && !HasFailure()) {
    connect();
    constexpr int exchanges = 20;
    for (int i = 0; i < exchanges && !HasFailure(); ++i) exchange();
    end();
  }
  if (HasFailure()) answers = wanted;
  for (std::thread& asker : askers) asker.join();
}

// The limit of this process stays at the standard descriptors until this object is destroyed: no
// call can make a descriptor, and those that are open stay.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = STDERR_FILENO + 1;  // poll(2) refuses more entries than the limit
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// How often the progress thread has slept. The file stays open, so that it can be read without a
// new descriptor.
class Sleeps {
 public:
  Sleeps() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(task.path() / "comm") >> name;
      if (name == "weft-progress") file_ = ::open((task.path() / "status").c_str(), O_RDONLY);
    }
    if (file_ < 0) throw std::runtime_error("there is no progress thread");
  }
  ~Sleeps() { ::close(file_); }
  Sleeps(const Sleeps&) = delete;
  Sleeps& operator=(const Sleeps&) = delete;

  [[nodiscard]] unsigned long count() const {
    constexpr std::string_view field = "\nvoluntary_ctxt_switches:";
    std::array<char, 8192> bytes{};
    const ssize_t got = ::pread(file_, bytes.data(), bytes.size() - 1, 0);
    const std::string text(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    const std::size_t at = text.find(field);
    return at == std::string::npos ? 0 : std::stoul(text.substr(at + field.size()));
  }

 private:
  int file_ = -1;
};

// The client stays in the queue, and epoll reports the socket as long as it does.
TEST_F(Live, WithoutADescriptorForAClientTheThreadSleeps) {
#ifdef __SANITIZE_ADDRESS__
  // Its runtime tests whether memory can be read with a pipe, and calls objects invalid without
  // one.
  GTEST_SKIP() << "the sanitizers need descriptors themselves";
#endif
  connect();
  exchange();
  const auto names = own_names();
  ASSERT_EQ(names.size(), 1U);
  const Sleeps sleeps;
  const int spare = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(spare, 0);
  std::optional<NoDescriptors> none(std::in_place);
  const auto address = live::address_of(names.front());
  ASSERT_EQ(::connect(spare, address.generic(), address.bytes), 0);
  const auto before = sleeps.count();
  constexpr unsigned long wanted = 5;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (sleeps.count() < before + wanted) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the thread does not sleep";
    std::this_thread::yield();
  }
  none.reset();
  // It is accepted once there are descriptors again.
  ASSERT_EQ(::send(spare, "?", 1, MSG_NOSIGNAL), 1);
  std::array<char, 1> first{};
  EXPECT_EQ(::recv(spare, first.data(), first.size(), 0), 1);
  EXPECT_EQ(first[0], '{');
  ::close(spare);
}

// The progress thread has other work than clients that come without end. The queue of the socket
// holds one more than are accepted at once, and of these the first eight are served.
TEST(LiveServer, AcceptsALimitedNumberOfClientsAtOnce) {
  device::Settings settings;
  settings.address = "127.0.0.1";
  auto device = device::Device::create(settings);
  ASSERT_TRUE(device) << device.error();
  const auto before = own_names();  // other devices of this process
  const auto server = LiveServer::open(**device);
  ASSERT_TRUE(server);
  auto names = own_names();
  std::erase_if(names, [&](const auto& name) { return std::ranges::count(before, name) > 0; });
  ASSERT_EQ(names.size(), 1U);
  constexpr std::size_t at_once = 8;
  std::vector<std::unique_ptr<Asker>> askers;
  for (std::size_t i = 0; i <= at_once; ++i) {
    askers.push_back(std::make_unique<Asker>(names.front()));
  }
  server->on_ready(EPOLLIN);
  EXPECT_FALSE(askers.back()->closed()) << "it still waits in the queue";
  server->on_ready(EPOLLIN);
  EXPECT_TRUE(askers.back()->closed()) << "there are places for eight";
  EXPECT_EQ((*device)->refusals().top_refused, 1U);
  server->stop();
}

TEST(LiveServer, ClosesAndCountsAClientOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  device::Settings settings;
  settings.address = "127.0.0.1";
  auto device = device::Device::create(settings);
  ASSERT_TRUE(device) << device.error();
  const auto before = own_names();
  const auto server = LiveServer::open(**device);
  ASSERT_TRUE(server);
  auto names = own_names();
  std::erase_if(names, [&](const auto& name) { return std::ranges::count(before, name) > 0; });
  ASSERT_EQ(names.size(), 1U);
  // The kernel keeps the user of the thread that connects; the C library would change all threads.
  std::optional<Asker> asker;
  std::thread([&] {
    constexpr uid_t other = 65534;
    ASSERT_EQ(syscall(SYS_setresuid, other, other, other), 0);
    asker.emplace(names.front());
  }).join();
  server->on_ready(EPOLLIN);
  ASSERT_TRUE(asker);
  EXPECT_TRUE(asker->closed());
  EXPECT_EQ((*device)->refusals().local_other_user, 1U);
  EXPECT_EQ((*device)->refusals().top_refused, 0U);
  server->stop();
}

}  // namespace
}  // namespace weft::provider
