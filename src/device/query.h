// What the device says of itself: ibv_query_device(3), ibv_query_port(3), ibv_query_gid(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace weft::device {

class Context;
class Device;

// The longest message of an unreliable datagram: one packet on the port's active MTU.
[[nodiscard]] std::uint32_t datagram_mtu_bytes(const Device& device);
void query_device(Context& context, ibv_device_attr& attributes);
// Fills at most `bytes` bytes of `attributes`, which may be of an older or a newer verbs.h.
int query_device_ex(Context& context, ibv_device_attr_ex* attributes, std::size_t bytes);
// EINVAL for a port other than 1.
int query_port(Context& context, std::uint8_t port, ibv_port_attr* attributes, std::size_t bytes);
int query_gid(Context& context, std::uint8_t port, int index, ibv_gid& gid);
int query_gid_entry(Context& context, std::uint32_t port, std::uint32_t index,
                    ibv_gid_entry& entry);
[[nodiscard]] std::size_t gid_count(Context& context);
int query_pkey(std::uint8_t port, int index, std::uint16_t& pkey_be);

}  // namespace weft::device
