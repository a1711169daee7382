// Many byte streams in one plain epoll loop, as a server of TCP would have them:
//
//   epoll_echo serve               prints its port, and sends back what it receives
//   epoll_echo HOST PORT STREAMS   opens that many streams, and sends a megabyte through each
//
// fd() of a stream serves both directions; send_fd() is for a server that stops receiving while it
// cannot send. All are level-triggered, for EPOLLIN.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <iostream>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <weft/error.hpp>
#include <weft/stream.hpp>

namespace {

using namespace weft;          // NOLINT(google-build-using-namespace)
using namespace weft::stream;  // NOLINT(google-build-using-namespace)

class Epoll {
 public:
  Epoll() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
    if (fd_ < 0) throw Error(errno, "no epoll descriptor");
  }

  // `events` 0: not while it waits for something else.
  void watch(int operation, int fd, std::uint32_t events, void* whose) const {
    epoll_event event{.events = events, .data = {.ptr = whose}};
    if (epoll_ctl(fd_, operation, fd, &event) != 0) throw Error(errno, "epoll cannot watch");
  }
  // Returns what was given for a descriptor that is ready.
  void* wait() const {
    epoll_event event{};
    while (epoll_wait(fd_, &event, 1, -1) < 1) {
      if (errno != EINTR) throw Error(errno, "epoll cannot wait");
    }
    return event.data.ptr;
  }

 private:
  const int fd_;
};

struct Echo {
  Stream stream;
  std::vector<std::byte> unsent{};
};

// Returns false once the stream is over.
bool go_on(Echo& echo) {
  std::array<std::byte, 16384> buffer;
  while (true) {
    while (!echo.unsent.empty()) {
      const auto sent = echo.stream.send(echo.unsent, Deadline::now());
      if (sent.would_block()) return true;  // nothing more is received before there is room
      if (!sent.ok()) return false;
      const auto taken = static_cast<std::ptrdiff_t>(sent.bytes);
      echo.unsent.erase(echo.unsent.begin(), echo.unsent.begin() + taken);
    }
    const auto got = echo.stream.receive(buffer, Deadline::now());
    if (got.would_block()) return true;
    if (!got.ok()) return false;
    echo.unsent.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got.bytes));
  }
}

[[noreturn]] void serve() {
  Listener listener({"", 0});
  listener.listen();
  std::cout << "port " << listener.port() << std::endl;
  Epoll epoll;
  epoll.watch(EPOLL_CTL_ADD, listener.fd(), EPOLLIN, nullptr);
  std::list<Echo> echoes;
  while (true) {
    auto* echo = static_cast<Echo*>(epoll.wait());
    if (echo == nullptr) {
      while (auto request = listener.next(Deadline::now())) {
        echo = &echoes.emplace_back(std::move(*request).accept());
        epoll.watch(EPOLL_CTL_ADD, echo->stream.fd(), EPOLLIN, echo);
        epoll.watch(EPOLL_CTL_ADD, echo->stream.send_fd(), EPOLLIN, echo);
      }
    } else if (go_on(*echo)) {
      epoll.watch(EPOLL_CTL_MOD, echo->stream.fd(), echo->unsent.empty() ? EPOLLIN : 0U, echo);
    } else {
      echoes.remove_if([echo](const Echo& each) { return &each == echo; });  // closes both
    }
  }
}

struct Flow {
  Stream stream{};
  std::size_t sent = 0, received = 0;
};

// Sends and receives what is possible now, and returns true once everything has come back.
bool go_on(Flow& flow, std::span<const std::byte> content) {
  std::array<std::byte, 16384> buffer;
  while (flow.received < content.size()) {
    const auto sent = flow.stream.send(content.subspan(flow.sent), Deadline::now());
    const auto got = flow.stream.receive(buffer, Deadline::now());
    if (got.error_number != 0) throw Error(got.error_number, "a stream has failed");
    const auto expected = content.subspan(flow.received, got.bytes);
    if (!std::ranges::equal(std::span(buffer).first(got.bytes), expected))
      throw Error(EIO, "other bytes came back");
    flow.sent += sent.bytes;
    flow.received += got.bytes;
    if (got.bytes == 0 && sent.bytes == 0) return false;
  }
  return true;
}

void ask(const char* host, std::uint16_t port, std::size_t streams) {
  std::vector<std::byte> content(1'000'000);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = std::byte(i * 31 >> 3);
  Epoll epoll;
  std::list<Flow> flows(streams);
  for (Flow& flow : flows) {
    flow.stream.start_connecting({host, port});
    epoll.watch(EPOLL_CTL_ADD, flow.stream.fd(), EPOLLIN, &flow);
  }
  while (!flows.empty()) {
    auto* flow = static_cast<Flow*>(epoll.wait());
    if (go_on(*flow, content)) flows.remove_if([flow](const Flow& f) { return &f == flow; });
  }
  std::cout << streams << " streams brought everything back\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "serve") serve();
  if (argc == 4) {
    ask(argv[1], static_cast<std::uint16_t>(std::stoi(argv[2])), std::stoul(argv[3]));
    return 0;
  }
  std::cerr << "usage: epoll_echo serve | epoll_echo HOST PORT STREAMS\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << "epoll_echo: " << error.what() << '\n';
  return 1;
}
