// The passive side of an rsocket: its address, and the clients that wait for raccept().
//
// poll(2) reports a listener as readable while accept(2) would return a client. Behind the
// descriptor of a stream::Listener there may be something else, such as a request that is no
// stream. So rpoll() takes the client from there, and it is kept here for raccept().
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <optional>

#include "base/event_fd.h"
#include "stream/fork_handler.h"
#include "weft/stream.hpp"

namespace weft::dropin {

// Thread-safe.
class RsocketListener {
 public:
  struct Client {
    stream::Request request;
    bool reported = false;  // by rpoll(): the program expects raccept() to return
  };

  // Binds. Throws Error.
  RsocketListener(const stream::Address& address, const stream::Options& options);
  RsocketListener(const RsocketListener&) = delete;
  RsocketListener& operator=(const RsocketListener&) = delete;

  // 0: the backlog of the device. Throws Error.
  void listen(int backlog);
  [[nodiscard]] bool is_listening() const { return listening_; }
  [[nodiscard]] const verbs::Id& id() const { return listener_.id(); }

  // The next client; nothing at the deadline. Throws Error, also that of end().
  [[nodiscard]] std::optional<Client> next(const Deadline& deadline);
  // The client is the next one again.
  void put_back(Client client);
  // For rpoll(): whether next() would return at once.
  [[nodiscard]] bool has_client();
  // From now on next() throws Error(error), also where it waits in another thread.
  void end(int error);
  [[nodiscard]] bool has_ended() const { return error_ != 0; }

  // Either is readable when has_client() may have changed.
  [[nodiscard]] int requests_fd() const { return listener_.fd(); }
  [[nodiscard]] int waiting_fd() const { return waiting_fd_->get(); }

 private:
  [[nodiscard]] std::optional<Client> take();
  [[nodiscard]] bool await(const Deadline& deadline) const;

  stream::Listener listener_;
  std::optional<EventFd> waiting_fd_;  // readable while a client waits, and after the end
  std::atomic<bool> listening_{false};
  std::atomic<int> error_{0};
  std::mutex mutex_;  // guards what follows
  std::list<Client> waiting_;
  stream::detail::ForkHandler fork_handler_;
};

}  // namespace weft::dropin
