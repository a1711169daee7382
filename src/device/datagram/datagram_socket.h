// A UDP socket that carries unreliable datagrams: that of a slot, at its port, that of all groups,
// or that of an rdma_cm id. It is connected to nobody: a packet may come from anywhere and go
// anywhere, and both ends of each are known.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "device/datagram/datagram_packet.h"
#include "device/engine.h"
#include "device/system.h"

namespace weft::device {

class DatagramReceiver;

class DatagramSocket final : public Pollable, public std::enable_shared_from_this<DatagramSocket> {
 public:
  // What came in, from the BTH on. Called by who drives the socket, with its receiving lock held.
  using Arrived = std::function<void(const DatagramRoute& route, Bytes packet)>;

  struct Plan {
    sockaddr_storage address{};  // port 0: any
    bool shared = false;         // others may have the port too
    bool both_families = false;  // of an IPv6 socket: IPv4 as well
    Arrived arrived;
  };

  // 0 or an errno value.
  [[nodiscard]] static int open(Engine& engine, const Plan& plan,
                                std::shared_ptr<DatagramSocket>& made);

  // False where there is no room for it now. Whatever else keeps it from leaving is a loss on the
  // way, which nobody learns of. The source's port is not looked at: it is this socket's.
  [[nodiscard]] bool send(const DatagramRoute& route, unsigned interface_index, Bytes packet);
  // Tells the queue pair once, when there is room again.
  void await_room(std::weak_ptr<DatagramReceiver> waiting);

  // As it was bound, with its port.
  [[nodiscard]] const sockaddr_storage& address() const { return address_; }
  void close();
  // 0 or an errno value.
  int join(const sockaddr_storage& group, unsigned interface_index);
  void leave(const sockaddr_storage& group, unsigned interface_index);

  // From a thread that polls.
  void drive_inline();
  void on_ready(std::uint32_t events) override;
  void abandon_after_fork();

 private:
  DatagramSocket(Engine& engine, const Plan& plan, const sockaddr_storage& address,
                 sys::Descriptor fd);

  void receive_available();
  [[nodiscard]] bool receive_one();
  void room_available();
  int change_membership(int ipv4_option, int ipv6_option, const sockaddr_storage& group,
                        unsigned interface_index);

  Engine& engine_;
  const sockaddr_storage address_;
  const Arrived arrived_;
  sys::Descriptor fd_;
  std::uint64_t token_ = 0;

  std::mutex receiving_;
  std::vector<std::byte> buffer_;

  std::mutex waiting_mutex_;
  std::vector<std::weak_ptr<DatagramReceiver>> waiting_;
};

}  // namespace weft::device
