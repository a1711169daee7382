// A slower network under one UDP socket (Settings::link): keeps packets until a link would have
// carried them, and loses some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/datagram/datagram_packet.h"
#include "device/faults/device_link.h"

namespace weft::device {

// One direction. Thread-safe.
class DatagramLink {
 public:
  struct Packet {
    DatagramRoute route;
    unsigned interface_index = 0;
    std::vector<std::byte> bytes;
    std::uint64_t due_ns = 0;
  };

  // `device` outlives this object.
  explicit DatagramLink(DeviceLink& device) : device_(device), schedule_(device.packets()) {}

  // When the packet is due; nothing where it is lost, which is counted.
  std::optional<std::uint64_t> add(const DatagramRoute& route, unsigned interface_index,
                                   Bytes packet, std::uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    const auto due_ns = schedule_.packet_due_ns(now_ns, packet.size());
    if (!due_ns || packets_.size() >= most_packets) {
      ++device_.counters().lost_datagrams;
      if (device_.counters().report) {
        device_.counters().report("the link has lost a datagram of " +
                                  std::to_string(packet.size()) + " bytes");
      }
      return std::nullopt;
    }
    device_.counters().delayed_bytes += packet.size();
    packets_.push_back({route, interface_index, {packet.begin(), packet.end()}, *due_ns});
    return due_ns;
  }
  // The next packet that is due. With `now_ns` UINT64_MAX, the next one.
  [[nodiscard]] std::optional<Packet> take(std::uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    if (packets_.empty() || packets_.front().due_ns > now_ns) return std::nullopt;
    Packet packet = std::move(packets_.front());
    packets_.pop_front();
    return packet;
  }

 private:
  // As a router, which drops what does not fit into its queue.
  static constexpr std::size_t most_packets = 16384;

  DeviceLink& device_;
  std::mutex mutex_;
  faults::LinkSchedule schedule_;
  std::deque<Packet> packets_;
};

}  // namespace weft::device
