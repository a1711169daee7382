#include "weft/verbs/gid.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>

namespace weft::verbs {
namespace {

// GIDs are in network byte order at every place where they are bytes.
std::uint64_t number(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

std::string Guid::to_string() const {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", value >> 48, value >> 32 & 0xFFFF,
                     value >> 16 & 0xFFFF, value & 0xFFFF);
}

Gid::Gid(const ibv_gid& gid) {
  std::copy_n(gid.raw, bytes_.size(), bytes_.begin());
}

// inet_pton(3) needs a terminated string, and a string_view need not have one.
std::optional<Gid> Gid::parse(std::string_view text) {
  const std::string terminated(text);
  Bytes bytes{};
  if (inet_pton(AF_INET6, terminated.c_str(), bytes.data()) == 1) return Gid(bytes);
  // An IPv4 address becomes IPv4-mapped (RFC 4291 §2.5.5.2), as RoCE v2 writes it into the table.
  if (inet_pton(AF_INET, terminated.c_str(), bytes.data() + 12) != 1) return std::nullopt;
  bytes[10] = bytes[11] = 0xFF;
  return Gid(bytes);
}

std::uint64_t Gid::subnet_prefix() const {
  return number(bytes_.data());
}

std::uint64_t Gid::interface_id() const {
  return number(bytes_.data() + 8);
}

// RFC 4291 §2.5.5.2: 80 bits of zero and 16 of one are before the IPv4 address.
bool Gid::is_ipv4_mapped() const {
  return subnet_prefix() == 0 && interface_id() >> 32 == 0xFFFF;
}

bool Gid::is_zero() const {
  return subnet_prefix() == 0 && interface_id() == 0;
}

std::string Gid::to_string() const {
  // inet_ntop(3) cannot fail here: the family is known and the buffer has the size for it.
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, bytes_.data(), text, sizeof text);
}

ibv_gid Gid::raw() const {
  ibv_gid gid{};
  std::copy(bytes_.begin(), bytes_.end(), gid.raw);
  return gid;
}

std::string GidEntry::interface_name() const {
  char name[IF_NAMESIZE];
  // Index 0 means that the row has no interface; the interface may also have been removed since.
  const char* found = interface_index ? if_indextoname(interface_index, name) : nullptr;
  return found ? found : "";
}

}  // namespace weft::verbs
