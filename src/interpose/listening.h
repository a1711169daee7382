// A socket that listens. As with TCP, whoever connects is connected before accept(2) is called, up
// to the backlog; those beyond it wait.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "weft/stream.hpp"

namespace weft::interpose {

class Socket;

class Listening {
 public:
  // Throws Error. `socket` is shown as readable while somebody waits to be accepted.
  static std::shared_ptr<Listening> start(stream::Listener listener, int backlog,
                                          std::weak_ptr<Socket> socket);
  Listening(stream::Listener listener, int backlog, std::weak_ptr<Socket> socket);

  [[nodiscard]] std::optional<stream::Stream> take();
  [[nodiscard]] std::string address() const;
  [[nodiscard]] bool is_open() const;
  // Nobody can connect any more; who was not accepted is refused.
  void close();
  // Somebody wants to connect.
  void asked(stream::Request request);

 private:
  void admit();

  const std::size_t backlog_;
  const std::weak_ptr<Socket> socket_;
  mutable std::mutex mutex_;
  std::string address_;
  std::optional<stream::Listener> listener_;
  std::uint64_t cookie_ = 0;
  std::deque<stream::Stream> connected_;
  std::deque<stream::Request> waiting_;
};

}  // namespace weft::interpose
