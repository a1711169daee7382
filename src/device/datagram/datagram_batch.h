// The packets that one system call moves through a UDP socket, with their addresses and the fields
// of their headers (ancillary data, cmsg(3)).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/datagram/datagram_packet.h"
#include "device/limits.h"

namespace weft::device {

// A packet to be sent, from the BTH on.
struct OutgoingDatagram {
  // Not null. The port of its source is ignored, and its destination is given the scope of the
  // interface where it is link-local.
  DatagramRoute* route = nullptr;
  unsigned interface_index = 0;
  Bytes packet;
};

// This many large packets fit into the second-level cache of a processor.
inline constexpr std::size_t most_datagrams_of_a_call = 32;

// Sends packets by one call, in their order; at most most_datagrams_of_a_call of them. Returns
// how many were sent, or -errno of the first one where it is none.
[[nodiscard]] int send_datagrams(int fd, std::span<const OutgoingDatagram> datagrams);

// Room for the ancillary data of a datagram: addresses, type of service, time to live.
using DatagramAncillary = std::array<std::byte, 128>;

// The packets that one call has received. Not thread-safe.
class InboundDatagrams {
 public:
  InboundDatagrams();

  // Receives what there is, at most `most` and at most most_datagrams_of_a_call. Returns the
  // number, or -errno. What was received before is overwritten.
  int receive(int fd, std::size_t most);

  // Packet `index` of the last call. `local`: the address of the socket, for what the packet does
  // not say.
  [[nodiscard]] DatagramRoute route(std::size_t index, const sockaddr_storage& local);
  // Longer than the largest packet of the device by one byte at most: more is cut off.
  [[nodiscard]] Bytes packet(std::size_t index) const;

 private:
  struct Entry {
    sockaddr_storage source{};
    iovec piece{};
    alignas(cmsghdr) DatagramAncillary ancillary{};
  };

  // One byte more than the largest packet, to detect larger ones.
  static constexpr std::size_t packet_room = datagram_packet_bytes(limits::max_datagram_bytes) + 1;

  void prepare(std::size_t index);

  // Not cleared: pages of it that no packet has needed take no memory.
  std::unique_ptr<std::byte[]> bytes_;
  std::vector<Entry> entries_;
  std::vector<mmsghdr> messages_;
  std::size_t used_ = 0;  // entries that the last call has changed
};

}  // namespace weft::device
