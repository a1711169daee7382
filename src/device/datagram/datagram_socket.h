// A UDP socket for unreliable datagrams: the one at a slot's port, the one for all groups, or that
// of an rdma_cm id. It is unconnected, so it exchanges packets with any address; both addresses of
// each packet are known.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/datagram/datagram_batch.h"
#include "device/datagram/datagram_link.h"
#include "device/datagram/datagram_packet.h"
#include "device/engine.h"
#include "device/system.h"

namespace weft::device {

class DatagramReceiver;

// Thread-safe. One thread receives at a time (receiving_); any thread may send.
class DatagramSocket final : public Pollable, public std::enable_shared_from_this<DatagramSocket> {
 public:
  // Called with each packet from the BTH on, by the thread that drives the socket, which holds
  // receiving_.
  using Arrived = std::function<void(const DatagramRoute& route, Bytes packet)>;

  struct Plan {
    sockaddr_storage address{};    // port 0: any free port
    bool shared = false;           // other sockets may use the same port (SO_REUSEADDR)
    bool both_families = false;    // an IPv6 socket also accepts IPv4
    unsigned interface_index = 0;  // packets of this interface only, if the kernel allows that
    Arrived arrived;
    DeviceLink* link = nullptr;  // a slower network; null: none
  };

  // 0 or an errno. No packet arrives before `made` is set.
  [[nodiscard]] static int open(Engine& engine, const Plan& plan,
                                std::shared_ptr<DatagramSocket>& made);

  // Sends a packet; false if the socket buffer is full. Any other failure counts as loss on the
  // network, which datagrams do not report. The port of route.source is ignored: it is this
  // socket's.
  [[nodiscard]] bool send(const DatagramRoute& route, unsigned interface_index, Bytes packet);
  // The same for several, in their order and by as few calls as possible. Returns how many the
  // socket had room for.
  [[nodiscard]] std::size_t send(std::span<const OutgoingDatagram> datagrams);
  // Calls DatagramReceiver::datagram_room() once when the socket is writable again.
  void await_room(std::weak_ptr<DatagramReceiver> waiting);

  // The bound address with its port.
  [[nodiscard]] const sockaddr_storage& address() const { return address_; }
  void close();
  // 0 or an errno.
  int join(const sockaddr_storage& group, unsigned interface_index);
  void leave(const sockaddr_storage& group, unsigned interface_index);

  void on_ready(std::uint32_t events) override;
  // Packets are due that a link has delayed.
  void on_deadline() override;
  // Sends what a link has delayed until `now_ns`; UINT64_MAX: all of it.
  void send_delayed(std::uint64_t now_ns);
  void abandon_after_fork();

 private:
  DatagramSocket(Engine& engine, const Plan& plan, const sockaddr_storage& address,
                 sys::Descriptor fd);

  [[nodiscard]] std::size_t send_now(std::span<const OutgoingDatagram> datagrams);
  void receive_available();
  void deliver(const DatagramRoute& route, Bytes packet);
  void deliver_late();
  std::size_t receive_some(std::size_t most);
  void room_available();
  int change_membership(int ipv4_option, int ipv6_option, const sockaddr_storage& group,
                        unsigned interface_index);

  Engine& engine_;
  const sockaddr_storage address_;
  const Arrived arrived_;
  sys::Descriptor fd_;
  std::uint64_t token_ = 0;
  std::atomic<bool> opened_{false};  // open() is done

  std::unique_ptr<DatagramLink> link_out_;  // null: no link
  std::unique_ptr<DatagramLink> link_in_;

  std::mutex receiving_;
  InboundDatagrams inbound_;

  std::mutex waiting_mutex_;
  std::vector<std::weak_ptr<DatagramReceiver>> waiting_;
};

}  // namespace weft::device
