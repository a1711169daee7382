// How the two ends of a TCP connection within one host find each other outside of it: by a Unix
// socket in the abstract namespace, named after the TCP address that the passive side listens on.
//
// The active side connects to that name before it sends its MPA request, and names its TCP
// connection there. When the passive side has accepted the request, the name is therefore already
// in its Unix socket's queue, or will never come: no side waits for a peer without this feature.
// The wire format is the same with and without it. What runs over the channel afterwards is
// described in local_agreement.h.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/system.h"
#include "device/tcp_ends.h"

namespace weft::device {

struct Refusals;

// A connected Unix socket between two processes of one user; each message arrives whole.
class LocalChannel {
 public:
  LocalChannel() = default;
  explicit LocalChannel(sys::Descriptor socket);

  // Connects to the process that listens on the remote address of `tcp`, a connection within this
  // host, and names that connection. Not valid where nothing listens, where another user does, or
  // where the other end is not on this host.
  [[nodiscard]] static LocalChannel dial(const TcpEnds& tcp);

  [[nodiscard]] bool valid() const { return socket_.valid(); }
  [[nodiscard]] int fd() const { return socket_.get(); }
  // The other process; 0 where it belongs to another user or cannot be seen from here.
  [[nodiscard]] pid_t peer() const;

  // One message with descriptors, which stay the caller's. False where it cannot be sent at once.
  [[nodiscard]] bool send(std::span<const std::byte> message,
                          std::span<const int> descriptors = {});
  // Wakes the peer, if it has registered the channel with its engine. Never blocks; a wake-up that
  // finds the queue full is not needed.
  void wake();
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<sys::Descriptor> descriptors;
  };
  // The next message; no value where none is there. An empty one: the peer has closed.
  [[nodiscard]] std::optional<Message> receive();
  // The next messages, as many as are there, but not more than `several`. Fewer: no other one was
  // there. Nothing follows an empty one.
  static constexpr std::size_t several = 4;
  [[nodiscard]] std::vector<Message> receive_several();

  void close() { socket_.reset(); }
  // In the child after fork(): the engine has closed the descriptor.
  void disown() { (void)socket_.release(); }

 private:
  sys::Descriptor socket_;
  ucred peer_{};  // of the moment in which the channel was connected
};

// The Unix sockets of a device's TCP listeners. Thread-safe.
class LocalListeners {
 public:
  explicit LocalListeners(Refusals& refusals) : refusals_(refusals) {}

  // Called for each TCP listener; does nothing where the name is taken. Returns whether one was
  // added.
  bool add(int tcp_listener);
  void remove(int tcp_listener);
  // The channel of a TCP connection within this host that one of the listeners has accepted, if its
  // active side has opened one.
  [[nodiscard]] LocalChannel take(const TcpEnds& tcp);
  void abandon_after_fork();

 private:
  struct Entry {
    std::string name;
    std::uint16_t port = 0;
    sys::Descriptor socket;
    int users = 1;
  };
  struct Offer {
    std::string connection;  // empty: not received yet
    LocalChannel channel;
  };
  // Takes offers until that of the connection is there. Of the listeners on this port: active sides
  // dial a name with the port of their connection.
  void accept_until(std::uint16_t port, const std::string& connection);
  static void take_name(Offer& offer);

  Refusals& refusals_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::deque<Offer> offers_;  // not taken yet
};

}  // namespace weft::device
