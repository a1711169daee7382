// What `weft top` asks for, while queue pairs and whole devices come and go: several threads, for
// the thread sanitizer.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "live/socket_name.h"
#include "provider/connected_pair.h"

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

}  // namespace
}  // namespace weft::provider
