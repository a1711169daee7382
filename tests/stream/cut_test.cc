// Cuts the TCP connection at each byte in turn: no side may hang or crash, or receive a byte that
// was not sent.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "stream/sides.h"
#include "support/host.h"

namespace weft::stream {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// A proxy to a port. It closes all connections once it has forwarded a number of bytes in one
// direction.
class Cutter {
 public:
  Cutter(std::uint16_t to, bool towards_server, std::size_t after_bytes)
      : to_(to), towards_server_(towards_server), left_(after_bytes) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    EXPECT_EQ(pipe(stop_.data()), 0);
    worker_ = std::jthread([this] { run(); });
  }
  ~Cutter() {
    close(stop_[1]);
    worker_.join();
    close(stop_[0]);
    close(listener_);
  }
  Cutter(const Cutter&) = delete;
  Cutter& operator=(const Cutter&) = delete;
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  void run() {
    while (true) {
      std::array<pollfd, 2> entries{{{listener_, POLLIN, 0}, {stop_[0], POLLIN, 0}}};
      poll(entries.data(), entries.size(), -1);
      if (entries[1].revents) return;
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(to_);
      if (left_ > 0 &&
          connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        pass_on(client, server);
      }
      close(client);
      close(server);
    }
  }

  void pass_on(int client, int server) {
    const std::array<int, 2> ends{client, server};
    while (true) {
      std::array<pollfd, 3> entries{
          {{client, POLLIN, 0}, {server, POLLIN, 0}, {stop_[0], POLLIN, 0}}};
      poll(entries.data(), entries.size(), -1);
      if (entries[2].revents) return;
      for (int from = 0; from < 2; ++from) {
        if (!entries[from].revents) continue;
        const bool counted = (from == 0) == towards_server_;
        std::array<char, 4096> bytes;
        const auto got = recv(ends[from], bytes.data(),
                              counted ? std::min(left_, bytes.size()) : bytes.size(), 0);
        if (got <= 0) return;
        if (send(ends[1 - from], bytes.data(), got, MSG_NOSIGNAL) != got) return;
        if (!counted) continue;
        left_ -= static_cast<std::size_t>(got);
        if (left_ == 0) return;
      }
    }
  }

  std::uint16_t to_;
  bool towards_server_;
  std::size_t left_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::array<int, 2> stop_{};
  std::jthread worker_;
};

constexpr std::size_t conversation_bytes = 1500;

// Sends a pattern, receives as many bytes, and closes. Returns whether all bytes of the peer came;
// those that came must be right.
bool converse(Stream& stream, int own, int other) {
  const auto bytes = test::pattern(conversation_bytes, own);
  const auto expected = test::pattern(conversation_bytes, other);
  (void)stream.send(bytes, test_timeout);
  const auto got = receive_all(stream, conversation_bytes);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
  stream.close(test_timeout);
  return got.size() == conversation_bytes;
}

// Returns how many of the two sides have received everything.
int conversation(const Options& options, bool towards_server, std::size_t cut_after) {
  Listener listener({test::host(), 0}, options);
  listener.listen();
  const Cutter cutter(listener.port(), towards_server, cut_after);
  std::atomic<bool> given_up{false};
  std::atomic<int> complete{0};
  std::jthread server([&] {
    while (!given_up) {
      auto request = listener.next(5ms);
      if (!request) continue;
      try {
        Stream stream = std::move(*request).accept();
        complete += converse(stream, 2, 1);
        return;
      } catch (const Error&) {
        continue;  // the peer has disconnected already
      }
    }
  });
  try {
    Stream stream(options);
    stream.connect({test::host(), cutter.port()}, test_timeout);
    complete += converse(stream, 1, 2);
  } catch (const Error&) {
    // The connection was cut before the stream was established.
  }
  given_up = true;
  server.join();
  return complete;
}

// The connection is cut by a TCP server between both ends.
class Cut : public BothVariants {
 protected:
  void SetUp() override {
    if (!test::own_device()) GTEST_SKIP() << "the embedded device connects by TCP";
  }
};
WEFT_BOTH_VARIANTS(Cut);

TEST_P(Cut, AtOneByteAfterTheOther) {
  const char* wish = std::getenv("WEFT_TEST_LONG");
  const bool all = wish && std::string_view(wish) != "0";
  for (const bool towards_server : {true, false}) {
    for (std::size_t at = 1; at <= 4096; at += all ? 1 : at < 200 ? 23 : 151) {
      SCOPED_TRACE((towards_server ? "to the server, " : "to the client, ") + std::to_string(at));
      (void)conversation(options(), towards_server, at);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(Cut, NothingIsLostWithoutACut) {
  EXPECT_EQ(conversation(options(), true, 100'000'000), 2);
}

}  // namespace
}  // namespace weft::stream
