#include "interpose/relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "interpose/process.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

constexpr std::size_t piece_bytes = 65536;
using Bytes = std::span<std::byte>;

// The connection to the peer. All calls block.
class Target {
 public:
  virtual ~Target() = default;
  virtual ssize_t receive(Bytes into) = 0;  // 0 at the end, negative if the connection is lost
  virtual bool send(std::span<const std::byte> bytes) = 0;
  virtual void finish() = 0;
  virtual void close() = 0;
};

class StreamTarget final : public Target {
 public:
  explicit StreamTarget(std::shared_ptr<stream::Stream> stream) : stream_(std::move(stream)) {}
  ssize_t receive(Bytes into) override {
    const auto outcome = stream_->receive(into);
    if (outcome.ok()) return static_cast<ssize_t>(outcome.bytes);
    return outcome.end() ? 0 : -1;
  }
  bool send(std::span<const std::byte> bytes) override {
    return stream_->send(bytes).bytes == bytes.size();
  }
  void finish() override { stream_->finish(); }
  void close() override { stream_->close(stream_->options().linger); }

 private:
  std::shared_ptr<stream::Stream> stream_;
};

// MSG_NOSIGNAL: the program does not know of these sockets, and must not get a SIGPIPE for them.
bool send_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = next::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

class TcpTarget final : public Target {
 public:
  explicit TcpTarget(Descriptor socket) : socket_(std::move(socket)) {}
  ssize_t receive(Bytes into) override {
    return next::recv(socket_.get(), into.data(), into.size(), 0);
  }
  bool send(std::span<const std::byte> bytes) override { return send_all(socket_.get(), bytes); }
  void finish() override { next::shutdown(socket_.get(), SHUT_WR); }
  void close() override { next::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  Descriptor socket_;
};

struct Relay {
  Relay(Descriptor its_pipe, std::unique_ptr<Target> its_target)
      : pipe(std::move(its_pipe)), target(std::move(its_target)) {}

  void run_to_program() {
    std::array<std::byte, piece_bytes> piece;
    while (true) {
      const ssize_t got = target->receive(piece);
      if (got <= 0) {
        // The end of the peer's bytes closes one direction only, because the program may still
        // send. After the loss of the connection both directions are useless.
        next::shutdown(pipe.get(), got == 0 ? SHUT_WR : SHUT_RDWR);
        return;
      }
      if (!send_all(pipe.get(), Bytes(piece).first(static_cast<std::size_t>(got)))) return;
    }
  }

  void run_from_program() {
    std::array<std::byte, piece_bytes> piece;
    bool takes = true;
    while (takes) {
      const ssize_t got = next::recv(pipe.get(), piece.data(), piece.size(), 0);
      if (got <= 0) break;
      takes = target->send(Bytes(piece).first(static_cast<std::size_t>(got)));
    }
    if (takes) {
      target->finish();
    } else {
      next::shutdown(pipe.get(), SHUT_RDWR);
    }
    // The program may still receive. POLLHUP reports that it has closed its end.
    pollfd gone{pipe.get(), 0, 0};
    while (next::poll(&gone, 1, -1) < 0 && errno == EINTR) {
    }
    target->close();
  }

  Descriptor pipe;
  std::unique_ptr<Target> target;
  ExitHold hold;  // the process may end when the relay is destroyed
};

// Each direction has a thread, because all calls block. The threads share the relay: the one that
// ends last destroys it, with its pipe and its target.
template <typename Direction>
void start(const std::shared_ptr<Relay>& relay, Direction direction) {
  start_thread([relay, direction] {
    try {
      (relay.get()->*direction)();
    } catch (const std::exception&) {
      next::shutdown(relay->pipe.get(), SHUT_RDWR);  // ends the other direction as well
      relay->target->close();
    }
  });
}

void run(Descriptor pipe, std::unique_ptr<Target> target) {
  const auto relay = std::make_shared<Relay>(std::move(pipe), std::move(target));
  start(relay, &Relay::run_to_program);
  start(relay, &Relay::run_from_program);
}

}  // namespace

void relay(Descriptor pipe, std::shared_ptr<stream::Stream> stream) {
  run(std::move(pipe), std::make_unique<StreamTarget>(std::move(stream)));
}

void relay(Descriptor pipe, Descriptor plain) {
  run(std::move(pipe), std::make_unique<TcpTarget>(std::move(plain)));
}

}  // namespace weft::interpose
