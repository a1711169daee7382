// All unreliable datagrams of a process: the sockets, the queue pairs behind them, and the groups
// that these have joined.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/datagram/datagram_socket.h"
#include "device/tap/capture_datagram.h"

namespace weft::device {

class Device;

// Counts dropped datagrams, which the protocol does not report to either side.
struct DatagramCounters {
  std::atomic<std::uint64_t> malformed{0};        // not a RoCE v2 packet of the UD service
  std::atomic<std::uint64_t> no_queue_pair{0};    // no such queue pair, or not ready to receive
  std::atomic<std::uint64_t> wrong_queue_key{0};  // also the port's qkey_viol_cntr
  std::atomic<std::uint64_t> no_receive{0};
  // Accepted in spite of a wrong ICRC: a router that translates addresses changes bytes that the
  // ICRC covers, and UDP has a checksum of its own.
  std::atomic<std::uint64_t> wrong_icrc{0};
};

// A received message and its headers. The bytes are valid during the call only.
struct Datagram {
  const wire::IbHeaders& headers;
  Bytes message;
  std::array<std::byte, grh_bytes> grh;
};

// A queue pair of type UD, as its sockets see it.
class DatagramReceiver {
 public:
  virtual ~DatagramReceiver() = default;
  virtual void take_datagram(const Datagram& datagram) = 0;
  // The socket has room again for the waiting packets.
  virtual void datagram_room() = 0;
};

// Thread-safe.
class Datagrams {
 public:
  explicit Datagrams(Device& device);

  // Starts delivering the datagrams of that queue pair number. 0 or an errno: EADDRINUSE if another
  // program has the slot's UDP port.
  [[nodiscard]] int add(std::uint32_t number, const std::shared_ptr<DatagramReceiver>& receiver);
  // Stops delivering to it, and leaves its groups.
  void remove(std::uint32_t number, const DatagramReceiver& receiver);

  // The socket that a queue pair sends from, bound to `source` where there is one; null if the host
  // has no address of that family.
  [[nodiscard]] std::shared_ptr<DatagramSocket> socket(std::uint32_t number,
                                                       const sockaddr_storage& source);

  // 0 or an errno: EINVAL if it is not a group, or not one of the queue pair's; ENOMEM.
  int attach(const std::shared_ptr<DatagramReceiver>& receiver, const ibv_gid& group);
  int detach(const DatagramReceiver& receiver, const ibv_gid& group);

  [[nodiscard]] DatagramCounters& counters() { return counters_; }
  // Sends at once what a link delays (Settings::link).
  void send_delayed();
  void capture(const DatagramRoute& route, Bytes packet, wire::PcapngDirection direction);
  void abandon_after_fork();

 private:
  using Port = std::pair<int, std::uint16_t>;  // address family and UDP port
  using Address = std::array<std::uint8_t, 16>;
  struct Member {
    std::weak_ptr<DatagramReceiver> receiver;
    const DatagramReceiver* identity;
    Address group;
  };

  [[nodiscard]] static Address bytes_of(const ibv_gid& gid);
  int open_socket(const sockaddr_storage& address, bool shared, unsigned interface_index = 0);
  int open_slot(std::uint16_t port);
  int open_group_socket(int family);
  [[nodiscard]] std::vector<int> families() const;
  [[nodiscard]] unsigned only_interface(int family) const;
  void arrived(const DatagramRoute& route, Bytes packet);
  void emit_grh(const DatagramRoute& route, std::size_t bytes, MutableBytes out) const;
  [[nodiscard]] std::vector<std::shared_ptr<DatagramReceiver>> receivers(const DatagramRoute& route,
                                                                         std::uint32_t number);
  int join(const sockaddr_storage& group);
  bool withdraw(const DatagramReceiver& receiver, const Address& name,
                const sockaddr_storage& address);
  void leave(const sockaddr_storage& group);

  Device& device_;
  DatagramCounters counters_;
  DatagramTap tap_;
  std::mutex mutex_;
  // A slot's port has a socket for each address, the port of the groups has one of each family.
  std::map<Port, std::vector<std::shared_ptr<DatagramSocket>>> sockets_;
  std::unordered_map<std::uint32_t, std::weak_ptr<DatagramReceiver>> receivers_;  // by number
  std::map<Address, std::vector<Member>> groups_;  // by the address that packets are sent to
};

}  // namespace weft::device
