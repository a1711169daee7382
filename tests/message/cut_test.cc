// Runs a conversation through a proxy that cuts it after each possible number of bytes. Both ends
// must get exactly one report of the end, and every message exactly one final status.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "message/sides.h"
#include "support/host.h"
#include "support/needs.h"

namespace weft::message::testing {
namespace {

// A proxy that forwards one connection after the other, and cuts each after a number of bytes in
// one direction.
class Proxy {
 public:
  explicit Proxy(std::uint16_t to) : to_(to), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = local(0);
    socklen_t bytes = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
        listen(listener_, 16) != 0) {
      throw std::runtime_error("no proxy");
    }
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { run(); });
  }
  ~Proxy() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Sets direction and number of bytes for the next connection. Direction 0 is from the active
  // side.
  void cut_after(int way, std::size_t bytes) {
    way_ = way;
    bytes_ = bytes;
  }

 private:
  static sockaddr_in local(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  void run() {
    while (true) {
      const int in = accept(listener_, nullptr, nullptr);
      if (in < 0) return;
      const int out = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in address = local(to_);
      if (connect(out, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        forward({in, out});
      }
      close(in);
      close(out);
    }
  }
  void forward(const std::array<int, 2>& sockets) {
    std::size_t left = bytes_;
    const int limited = way_;
    std::array<char, 4096> buffer;
    while (true) {
      std::array<pollfd, 2> wait{{{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}}};
      poll(wait.data(), wait.size(), -1);
      for (const int way : {0, 1}) {
        if (wait[way].revents == 0) continue;
        const std::size_t most = way == limited ? std::min(left, buffer.size()) : buffer.size();
        if (most == 0) return;
        const ssize_t got = read(sockets[way], buffer.data(), most);
        if (got <= 0) return;
        if (send(sockets[1 - way], buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) !=
            got) {
          return;
        }
        if (way == limited) left -= static_cast<std::size_t>(got);
      }
    }
  }

  std::uint16_t to_;
  int listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> way_{0};
  std::atomic<std::size_t> bytes_{0};
  std::jthread thread_;
};

// The messages of each side: short ones, long ones, and some with `confirm`.
void talk(Connection& connection, std::vector<Sending>& messages) {
  for (const std::size_t bytes : {1, 300, 3000, 0, 10}) {
    messages.push_back(connection.send(pattern(bytes), {.confirm = bytes != 300}));
  }
}

void cut_at(EventLoop& loop, Proxy& proxy, std::optional<Log>& accepted, int way,
            std::size_t bytes) {
  proxy.cut_after(way, bytes);
  accepted.reset();
  Log log;
  std::array<std::vector<Sending>, 2> messages;
  Options options;
  options.connect_timeout = 20s;
  Handlers handlers = log.handlers();
  handlers.established = [&](Connection& connection) {
    ++log.established;
    talk(connection, messages[0]);
  };
  Connection connection = loop.connect({test::host(), proxy.port()}, handlers, options);
  bool talked = false;
  const auto over = [&] {
    if (accepted && accepted->established && !talked) {
      talked = true;
      talk(accepted->connection, messages[1]);
    }
    // Finished when the whole conversation needs fewer bytes than the cut.
    const bool all_delivered =
        log.delivered.size() == 4 && accepted && accepted->delivered.size() == 4;
    if (all_delivered) connection.disconnect();
    return connection.state() == State::ended && loop.connections() == 0;
  };
  until(loop, over);
  EXPECT_EQ(log.established, static_cast<int>(log.endings.size()));
  EXPECT_GE(log.errors.size() + log.endings.size(), 1U);
  if (accepted) {
    EXPECT_EQ(accepted->established, static_cast<int>(accepted->endings.size()));
  }
  for (const auto& of_one : messages) {
    for (const auto& message : of_one) EXPECT_NE(message.status(), Status::waiting);
  }
  // In order, and none twice.
  const std::vector<std::size_t> lengths{1, 300, 3000, 0, 10};
  for (const Log* one : {&log, accepted ? &*accepted : &log}) {
    ASSERT_LE(one->texts.size(), lengths.size());
    for (std::size_t i = 0; i < one->texts.size(); ++i) {
      EXPECT_EQ(one->texts[i], text_of(pattern(lengths[i])));
    }
  }
}

TEST(Cut, AtEachByteOfAConversationBothSidesGetReports) {
  if (!test::own_device()) GTEST_SKIP() << "the embedded device connects by TCP";
  Limits limits;
  limits.eager_bytes = 1000;
  limits.credits = 3;
  EventLoop loop(limits);
  std::optional<Log> accepted;
  const auto listener = loop.listen({test::host(), 0}, [&](Request request) {
    accepted.emplace();
    request.accept(accepted->handlers());
  });
  Proxy proxy(listener.port());
  const std::size_t step = getenv("WEFT_TEST_LONG") ? 1 : 17;
  for (const int way : {0, 1}) {
    for (std::size_t bytes = 0; bytes < 4096; bytes += step) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, way " + std::to_string(way));
      ASSERT_NO_FATAL_FAILURE(cut_at(loop, proxy, accepted, way, bytes));
    }
  }
}

}  // namespace
}  // namespace weft::message::testing
