#include "device/lid.h"

#include <arpa/inet.h>
#include <net/if_arp.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>

#include "base/caller_explains.h"
#include "base/log.h"
#include "device/device.h"
#include "device/gid_table.h"

namespace weft::device {
namespace {

constexpr std::uint32_t first_group_lid = 0xC000;
constexpr std::uint32_t first_shared_lid = 0x4000;  // from here to 0x7FFF, two addresses have one
constexpr std::uint32_t top_bit = 0x8000;
constexpr std::uint32_t low_bits = 0xFFFF;
// The length of prefixes that leave the low 16 bits open, and of those that fix the top one of
// them.
constexpr unsigned low_prefix_bits = 16;
constexpr unsigned exact_prefix_bits = 17;

std::uint32_t ipv4_of(const sockaddr_storage& address) {
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
}

sockaddr_storage with_ipv4(sockaddr_storage address, std::uint32_t ipv4) {
  reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(ipv4);
  return address;
}

bool in_subnet(const LocalAddress& local, const sockaddr_storage& address) {
  if (address.ss_family != AF_INET || local.prefix_bits == 0) return false;
  return (ipv4_of(address) ^ ipv4_of(local.address)) >> (32 - local.prefix_bits) == 0;
}

// Whether several addresses of the subnet have this LID.
bool is_ambiguous(const LocalAddress& local, std::uint16_t lid) {
  if (local.prefix_bits < low_prefix_bits) return true;
  return local.prefix_bits < exact_prefix_bits && lid >= first_shared_lid && lid < top_bit;
}

// The address of the LID if it shares all other bits with `local`, in a subnet of at least 17
// prefix bits also bit 15. A LID that cannot have that bit belongs to a routed neighbour.
sockaddr_storage neighbour_with(const LocalAddress& local, std::uint16_t lid) {
  const std::uint32_t own = ipv4_of(local.address);
  if (local.prefix_bits >= exact_prefix_bits) {
    const auto near = with_ipv4(local.address, (own & ~(low_bits >> 1)) | (lid & (low_bits >> 1)));
    if (lid_of(near) == lid) return near;
  }
  return with_ipv4(local.address, (own & ~low_bits) | lid);
}

// Names the remedy on stderr, once for each process: many programs print only that the step failed,
// and some do not check it. Such an address works on an InfiniBand port, which has LIDs.
int refuse_without_gid() {
  static std::atomic_flag printed;
  if (!CallerExplains::active() && !printed.test_and_set()) {
    log_format(LogLevel::warning, "weft0",
               "an address vector without a GID needs LIDs, which a device on Ethernet does not "
               "have; use `weft run --personality ib`, or the program's option for a GID index, "
               "such as -g 0 of ibv_rc_pingpong, or for rdma_cm");
  }
  return EINVAL;
}

int refuse_lid(std::uint16_t lid) {
  static std::atomic_flag printed;
  if (!printed.test_and_set()) {
    log_format(LogLevel::warning, "weft0",
               "LID %u is none of a port; ports have LIDs from 1 to %u, made of the low 16 bits of "
               "an IPv4 address",
               lid, first_group_lid - 1);
  }
  return EINVAL;
}

}  // namespace

std::uint16_t lid_of(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET) return 0;
  const std::uint32_t low = ipv4_of(address) & low_bits;
  return static_cast<std::uint16_t>(low < first_group_lid ? low : low & ~top_bit);
}

std::string check_lid(const LocalAddress& local) {
  if (lid_of(local.address) != 0) return {};
  std::string text = to_string(local.address);
  text.erase(text.rfind(':'));  // the port
  return "WEFT_PERSONALITY=ib: the address " + text +
         " has no LID; give an IPv4 address of this host that does not end in 0.0 by WEFT_ADDR, "
         "for example 127.0.0.1";
}

std::uint16_t lid_of_port(const Device& device) {
  return device.has_lids() ? lid_of(device.addresses().front().address) : std::uint16_t{0};
}

std::optional<sockaddr_storage> find_by_lid(const LocalAddress& local, std::uint16_t lid,
                                            KnownAddresses known) {
  if (lid == 0 || lid >= first_group_lid || local.address.ss_family != AF_INET) return {};
  if (lid == lid_of(local.address)) return local.address;
  const sockaddr_storage usual = neighbour_with(local, lid);
  if (!is_ambiguous(local, lid)) return usual;
  std::optional<sockaddr_storage> found;
  for (const sockaddr_storage& address : known(local)) {
    if (lid_of(address) != lid || !in_subnet(local, address)) continue;
    // Of several, none is certain: the usual rule decides, as it does without any.
    if (found && !same_host_address(*found, address)) return usual;
    found = address;
  }
  return found ? *found : usual;
}

// The ARP table has the hosts of the subnet that this host has exchanged packets with. A program
// that learns a LID over TCP has its peer there. A kernel without the file has no answer.
std::vector<sockaddr_storage> known_addresses(const LocalAddress& local) {
  std::vector<sockaddr_storage> known;
  if (const auto own = local_addresses()) {
    for (const LocalAddress& one : *own) known.push_back(one.address);
  }
  std::ifstream table("/proc/net/arp");
  std::string line;
  while (std::getline(table, line)) {
    // IP address, hardware type, flags, hardware address, mask, device.
    std::array<char, INET_ADDRSTRLEN> text{};
    std::array<char, 32> interface {};
    unsigned flags = 0;
    if (std::sscanf(line.c_str(), "%15s %*s %x %*s %*s %31s", text.data(), &flags,
                    interface.data()) != 3) {
      continue;
    }
    sockaddr_storage address{};
    const bool complete = (flags & ATF_COM) != 0 && local.interface == interface.data();
    if (complete && parse_address(text.data(), address)) known.push_back(address);
  }
  return known;
}

int path_ends(const Device& device, const ibv_ah_attr& vector, PathEnds& ends) {
  if (vector.is_global) {
    ends = {address_of_row(device, vector.grh.sgid_index), plain_gid(device, vector.grh.dgid)};
    return ends.local ? 0 : EINVAL;
  }
  if (!device.has_lids()) return refuse_without_gid();
  ends.local = &device.addresses().front();
  const auto destination = find_by_lid(*ends.local, vector.dlid, known_addresses);
  if (!destination) return refuse_lid(vector.dlid);
  ends.destination = gid_of(*destination);
  return 0;
}

}  // namespace weft::device
