// Ports that a program uses for TCP and for rdma_cm at once, as iSCSI targets do with 3260. Here
// both are TCP ports, so only one socket can listen. It is the program's: accept(2) of
// libweft-node.so, which `weft run` loads, looks at the first bytes of each connection, and passes
// those that begin with the key of an MPA request (RFC 5044 §7.1.1) to the id that listens at the
// port. The program sees the others only.
//
// TCP_DEFER_ACCEPT lets a connection wait in the kernel until its first bytes are there, so
// accept(2) need not wait for them. A client that waits for the server to speak first comes a
// second later.
//
// A program that closes its socket goes on listening by rdma_cm: the id gets the socket (cmtime(1)
// agrees with its peer by TCP at the port, and then listens there by rdma_cm alone).
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/socket_hooks.h"

namespace weft::cm {

class Identifier;
class StreamSpace;

// Thread-safe. Its lock is never held while an id or a socket of the device is called.
class SharedPorts {
 public:
  SharedPorts();
  SharedPorts(const SharedPorts&) = delete;
  SharedPorts& operator=(const SharedPorts&) = delete;

  // A port that an id has reserved, whether alone or shared.
  struct Port {
    sockaddr_storage address{};
    bool ipv6_only = false;
    std::weak_ptr<Identifier> owner{};
    StreamSpace* space = nullptr;  // valid while `owner` can be locked
    bool shared = false;           // the listening socket is the program's
  };
  void add(Port port);
  void remove(const StreamSpace* space);

  // The port of an address is taken. True if it is the program's own sockets that have it, and if
  // their connections for the device will be passed on from now on. Prints a line where they have
  // less than the address, as with a socket at 127.0.0.1 and an id at 0.0.0.0.
  [[nodiscard]] bool share(const sockaddr_storage& address, bool ipv6_only);
  // No more connections are passed on.
  void withdraw();
  void abandon_after_fork();

 private:
  [[nodiscard]] bool take(int connection);
  void on_bound(int socket);
  [[nodiscard]] int bind(int socket, const sockaddr* given, socklen_t bytes);
  void on_closing(int descriptor);
  [[nodiscard]] std::optional<Port> port_of_connection(const sockaddr_storage& local);
  [[nodiscard]] bool set_hooks(const SocketHooks* hooks) const;

  SocketHooks hooks_;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> any_shared_{false};  // now or before, so that most programs close at once
  std::mutex mutex_;
  std::vector<Port> ports_;
};

}  // namespace weft::cm
