// A socket that listens: the kernel's. Whoever connects is taken from the kernel's queue in one of
// two ways.
//
// Ahead of accept(2), by a thread: as with TCP, a client is connected before it is accepted, up to
// the backlog. So it is where this process alone has the socket, and is known to accept.
//
// By accept(2) itself: so it is where another process has the socket as well (fork(2)), for what is
// taken here is accepted here or nowhere; and at first, as the process may be about to fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "interpose/newcomer.h"

namespace weft::interpose {

class Socket;

// Thread-safe.
class Listening : public std::enable_shared_from_this<Listening> {
 public:
  // `kernel` is that of `socket`, listens, and does not block. `socket` is shown as readable while
  // somebody waits to be accepted. Throws Error.
  static std::shared_ptr<Listening> start(int kernel, int backlog, const stream::Options& options,
                                          std::weak_ptr<Socket> socket);
  Listening(int kernel, int backlog, const stream::Options& options, std::weak_ptr<Socket> socket);

  // The program connects to this port: maybe to a listener of its own, before it accepts.
  static void before_connecting(std::uint16_t port);
  // Somebody who was connected ahead.
  [[nodiscard]] std::optional<Newcomer> take();
  // Whether accept(2) has to look into the kernel's queue.
  [[nodiscard]] bool is_left_to_kernel() const;
  // This process accepts: others need not wait for that. Nothing where the socket is shared.
  void go_ahead();
  // fork(2): from now on others may accept as well.
  void share();
  [[nodiscard]] bool is_shared() const;
  [[nodiscard]] bool is_open() const;
  // This process does not accept any more. Who was connected ahead is reset.
  void close();

  // For the greeter: somebody waits in the kernel's queue.
  void knocked();
  // Who waited may have been accepted elsewhere. Whether it has to be asked again, later; `later`
  // says that this is so.
  bool look_again(bool later);

 private:
  void take_ahead();
  void welcome(Descriptor connection);
  void expect_own();
  void watch_if_room();
  void show(bool another);

  const int kernel_;
  const std::uint16_t port_;
  const std::size_t backlog_;
  const stream::Options options_;
  const std::weak_ptr<Socket> socket_;
  mutable std::mutex mutex_;
  std::uint64_t cookie_ = 0;
  bool open_ = true;
  bool ahead_ = false;
  bool shared_ = false;
  bool watched_ = false;   // for somebody to connect
  bool waits_ = false;     // somebody does, in the kernel's queue
  unsigned looks_ = 0;     // since then
  std::size_t own_ = 0;    // connections of our own to be taken ahead
  std::size_t heard_ = 0;  // that are being asked what they want
  std::deque<Newcomer> connected_;
};

}  // namespace weft::interpose
