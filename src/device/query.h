// The answers to ibv_query_device(3), ibv_query_port(3), ibv_query_gid(3) and their relatives.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace weft::device {

class Context;
class Device;

// The longest unreliable datagram: one packet of the port's active MTU.
[[nodiscard]] std::uint32_t datagram_mtu_bytes(const Device& device);
void query_device(Context& context, ibv_device_attr& attributes);
// Fills in at most `bytes` bytes of `attributes`; its size depends on the program's version of
// verbs.h.
int query_device_ex(Context& context, ibv_device_attr_ex* attributes, std::size_t bytes);
// These return 0 or an errno: EINVAL for a port other than 1 or an index beyond the table.
int query_port(Context& context, std::uint8_t port, ibv_port_attr* attributes, std::size_t bytes);
int query_gid(Context& context, std::uint8_t port, int index, ibv_gid& gid);
int query_gid_entry(Context& context, std::uint32_t port, std::uint32_t index,
                    ibv_gid_entry& entry);
[[nodiscard]] std::size_t gid_count(Context& context);
int query_pkey(std::uint8_t port, int index, std::uint16_t& pkey_be);

}  // namespace weft::device
