#include "device/datagram/datagrams.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/after_fork.h"
#include "base/log.h"
#include "device/connect/slots.h"
#include "device/device.h"
#include "device/gid_table.h"
#include "device/limits.h"
#include "wire/ip.h"

namespace weft::device {
namespace {

// Behind a GRH comes a BTH (InfiniBand Architecture Specification, volume 1, §8.3).
constexpr std::uint8_t grh_next_header = 0x1B;

// A GID has the form of an IPv6 address.
wire::Ipv6Address ipv6_of(const ibv_gid& gid) {
  wire::Ipv6Address bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  return bytes;
}

}  // namespace

// Groups have the port behind those of all slots, the same one on every host.
static_assert(multicast_port == slot::first_port + slot::count);

Datagrams::Datagrams(Device& device) : device_(device), tap_(device.capture()) {}

Datagrams::Address Datagrams::bytes_of(const ibv_gid& gid) {
  return std::to_array(gid.raw);
}

// IPv4, IPv6 or both, as the device has addresses.
std::vector<int> Datagrams::families() const {
  std::vector<int> found;
  for (const LocalAddress& local : device_.addresses()) {
    const int family = local.address.ss_family;
    if (std::find(found.begin(), found.end(), family) == found.end()) found.push_back(family);
  }
  return found;
}

// mutex_ must be held.
// Another program at this UDP port is an error of the call that creates the queue pair; the message
// names the port.
int Datagrams::open_socket(const sockaddr_storage& address, bool shared, unsigned interface_index) {
  const DatagramSocket::Plan plan{
      .address = address,
      .shared = shared,
      .interface_index = interface_index,
      .arrived = [this](const auto& route, Bytes packet) { arrived(route, packet); },
      .link = device_.link()};
  std::shared_ptr<DatagramSocket> socket;
  const int failed = DatagramSocket::open(device_.engine(), plan, socket);
  if (failed == EADDRINUSE) {
    log_format(LogLevel::warning, "weft0",
               "UDP port %d belongs to another program: no datagrams for queue pairs of "
               "this slot",
               port_of(address));
  }
  if (failed == 0) sockets_[{address.ss_family, port_of(address)}].push_back(std::move(socket));
  return failed;
}

// Opens the port where it is not open yet. mutex_ must be held.
int Datagrams::open_slot(std::uint16_t port) {
  if (sockets_.contains({AF_INET, port}) || sockets_.contains({AF_INET6, port})) return 0;
  // The same addresses as for TCP: a queue pair is reached by its GIDs only.
  for (sockaddr_storage& address : slot::listening_addresses(device_.addresses())) {
    set_port(address, port);
    const int failed = open_socket(address, false);
    if (failed == 0 || slot::is_missing_address(failed)) continue;
    // All or nothing, as for the TCP ports of a slot.
    for (const int family : {AF_INET, AF_INET6}) {
      for (const auto& socket : sockets_[{family, port}]) socket->close();
      sockets_.erase({family, port});
    }
    return failed;
  }
  return 0;
}

// The interface of all GIDs of this family; 0 where they are several.
unsigned Datagrams::only_interface(int family) const {
  unsigned only = 0;
  for (const LocalAddress& local : device_.addresses()) {
    if (local.address.ss_family != family) continue;
    if (only != 0 && local.interface_index != only) return 0;
    only = local.interface_index;
  }
  return only;
}

// Packets of a group are sent to the group's address, so no address of this host is bound. They can
// only come from an interface that has a GID; with WEFT_ADDR=127.0.0.1, no other host reaches the
// port.
int Datagrams::open_group_socket(int family) {
  if (sockets_.contains({family, multicast_port})) return 0;
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  set_port(any, multicast_port);
  return open_socket(any, true, only_interface(family));
}

void Datagrams::send_delayed() {
  const std::lock_guard lock(mutex_);
  for (const auto& [port, sockets] : sockets_) {
    for (const auto& socket : sockets) socket->send_delayed(UINT64_MAX);
  }
}

// The sockets of a slot are opened with its first datagram queue pair and stay open.
int Datagrams::add(std::uint32_t number, const std::shared_ptr<DatagramReceiver>& receiver) {
  const std::lock_guard lock(mutex_);
  if (const int failed = open_slot(slot::port_of(number))) return failed;
  receivers_[number] = receiver;
  return 0;
}

// Also leaves groups that have no other member, so that the kernel stops receiving for them.
void Datagrams::remove(std::uint32_t number, const DatagramReceiver& receiver) {
  const std::lock_guard lock(mutex_);
  receivers_.erase(number);
  for (auto& [address, members] : groups_) {
    const auto gone =
        std::erase_if(members, [&](const Member& member) { return member.identity == &receiver; });
    if (gone == 0 || !members.empty()) continue;
    ibv_gid gid{};
    std::copy(address.begin(), address.end(), gid.raw);
    leave(address_of(gid));
  }
  std::erase_if(groups_, [](const auto& entry) { return entry.second.empty(); });
}

std::shared_ptr<DatagramSocket> Datagrams::socket(std::uint32_t number,
                                                  const sockaddr_storage& source) {
  const std::lock_guard lock(mutex_);
  const auto found = sockets_.find({source.ss_family, slot::port_of(number)});
  if (found == sockets_.end()) return nullptr;
  for (const auto& socket : found->second) {
    if (same_host_address(socket->address(), source)) return socket;
  }
  // No socket has this address any more, for example after an interface went down: another one of
  // the family sends.
  return found->second.front();
}

// --- Inbound -------------------------------------------------------------------------------------

std::vector<std::shared_ptr<DatagramReceiver>> Datagrams::receivers(const DatagramRoute& route,
                                                                    std::uint32_t number) {
  std::vector<std::shared_ptr<DatagramReceiver>> found;
  const ibv_gid destination = gid_of(route.destination);
  const std::lock_guard lock(mutex_);
  // The number alone must not decide: a packet at another slot's port would reach a queue pair that
  // its sender did not address.
  if (!is_multicast(destination)) {
    // Reject packets that arrive at the port of the groups or of another slot.
    const bool here = port_of(route.destination) == slot::port_of(number);
    const auto entry = here ? receivers_.find(number) : receivers_.end();
    if (entry != receivers_.end()) found.push_back(entry->second.lock());
  } else if (number == multicast_queue_pair) {
    // A group packet must have both the group's address and the reserved queue pair number.
    const auto group = groups_.find(bytes_of(destination));
    if (group == groups_.end()) return found;
    for (const Member& member : group->second) found.push_back(member.receiver.lock());
    // A queue pair may have joined groups whose addresses are the same; it gets one copy of the
    // packet.
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
  }
  std::erase(found, nullptr);
  return found;
}

// Checks, captures and counts a packet before delivery. Queue pairs are called without mutex_,
// because they take their own locks.
void Datagrams::arrived(const DatagramRoute& route, Bytes packet) {
  const auto view = wire::IbPacketView::check(packet);
  // Everything is checked before anything is taken from the packet, since any host may send to this
  // port.
  const bool ours = view && view->layout().known && view->layout().deth &&
                    view->bth().opcode.transport == wire::IbTransport::ud &&
                    view->payload().size() <= limits::max_datagram_bytes;
  if (!ours) {
    ++counters_.malformed;
    return;
  }
  capture(route, packet, wire::PcapngDirection::inbound);
  // Counted and accepted: address translation changes what the ICRC covers, and UDP has a checksum
  // of its own.
  if (!icrc_is_right(route, *view)) ++counters_.wrong_icrc;
  Datagram datagram{.headers = view->headers(), .message = view->payload(), .grh = {}};
  emit_grh(route, packet.size(), datagram.grh);
  const auto to = receivers(route, view->bth().destination_qp);
  if (to.empty()) ++counters_.no_queue_pair;
  for (const auto& receiver : to) receiver->take_datagram(datagram);
}

// On Ethernet a program sees the IP header in place of the GRH, as with adapters. On InfiniBand it
// is a GRH with GIDs (InfiniBand Architecture Specification, volume 1, §8.3).
void Datagrams::emit_grh(const DatagramRoute& route, std::size_t bytes, MutableBytes out) const {
  if (!device_.has_lids()) return DatagramHeaders(route, bytes).emit_grh(out);
  wire::Ipv6Header header;
  header.traffic_class = route.traffic_class;
  header.payload_bytes = static_cast<std::uint16_t>(bytes);
  header.next_header = wire::IpProtocol{grh_next_header};
  header.hop_limit = route.hop_limit;
  header.source = ipv6_of(shown_gid(device_, route.source));
  header.destination = ipv6_of(shown_gid(device_, route.destination));
  header.emit(out);
}

void Datagrams::capture(const DatagramRoute& route, Bytes packet, wire::PcapngDirection direction) {
  if (!tap_.wanted()) return;
  const auto view = wire::IbPacketView::check(packet);
  if (!view) return;
  // Shown at RoCE's port, which analyzers know, with an ICRC that fits it.
  tap_.write(route, packet.first(packet.size() - wire::IbPacketView::icrc_bytes),
             icrc_at_roce_port(route, *view), direction);
}

// --- Groups --------------------------------------------------------------------------------------

// A group is joined in each address family of the device, since a sender may use any of them. If
// one family fails, the memberships of the others that this call has made are undone.
int Datagrams::attach(const std::shared_ptr<DatagramReceiver>& receiver, const ibv_gid& group) {
  if (!is_multicast(group)) return EINVAL;
  const std::lock_guard lock(mutex_);
  const Address name = bytes_of(group);
  const Member member{receiver, receiver.get(), name};
  std::vector<sockaddr_storage> joined;
  for (const int family : families()) {
    const sockaddr_storage address = multicast_address(group, family);
    const auto [entry, fresh] = groups_.try_emplace(bytes_of(gid_of(address)));
    auto& members = entry->second;
    const bool known = std::any_of(members.begin(), members.end(), [&](const Member& other) {
      return other.identity == member.identity && other.group == name;
    });
    if (known) continue;  // attaching twice succeeds and has no effect
    int failed = members.size() >= limits::max_multicast_members ? ENOMEM : 0;
    if (failed == 0 && fresh) failed = join(address);
    if (failed != 0) {
      if (fresh) groups_.erase(entry);
      for (const sockaddr_storage& earlier : joined) withdraw(*receiver, name, earlier);
      return failed;
    }
    members.push_back(member);
    joined.push_back(address);
  }
  return 0;
}

// ibv_detach_mcast(3): EINVAL where the queue pair is not attached to the group.
int Datagrams::detach(const DatagramReceiver& receiver, const ibv_gid& group) {
  if (!is_multicast(group)) return EINVAL;
  const std::lock_guard lock(mutex_);
  bool found = false;
  for (const int family : families()) {
    found |= withdraw(receiver, bytes_of(group), multicast_address(group, family));
  }
  return found ? 0 : EINVAL;
}

// Ends a membership in one address family, and leaves the kernel's group with its last member.
// Returns false if there is no such membership. mutex_ must be held.
bool Datagrams::withdraw(const DatagramReceiver& receiver, const Address& name,
                         const sockaddr_storage& address) {
  const auto entry = groups_.find(bytes_of(gid_of(address)));
  if (entry == groups_.end()) return false;
  const auto ended = std::erase_if(entry->second, [&](const Member& member) {
    return member.identity == &receiver && member.group == name;
  });
  if (!entry->second.empty()) return ended != 0;
  groups_.erase(entry);
  leave(address);
  return ended != 0;
}

// Joins on every interface that has a GID, because a packet for the group may arrive at any of
// them. mutex_ must be held.
int Datagrams::join(const sockaddr_storage& group) {
  const int family = group.ss_family;
  // The group that is being joined is in the map already.
  if (groups_.size() > limits::max_multicast_groups) return ENOMEM;
  if (const int failed = open_group_socket(family)) return failed;
  DatagramSocket& socket = *sockets_[{family, multicast_port}].front();
  for (const LocalAddress& local : device_.addresses()) {
    if (local.address.ss_family != family) continue;
    const int failed = socket.join(group, local.interface_index);
    if (failed == EADDRINUSE) continue;  // another address of the same interface
    if (failed == 0) continue;
    leave(group);
    return failed == ENOBUFS ? ENOMEM : failed;
  }
  return 0;
}

void Datagrams::leave(const sockaddr_storage& group) {
  const auto entry = sockets_.find({group.ss_family, multicast_port});
  if (entry == sockets_.end()) return;
  for (const LocalAddress& local : device_.addresses()) {
    if (local.address.ss_family != group.ss_family) continue;
    entry->second.front()->leave(group, local.interface_index);
  }
}

void Datagrams::abandon_after_fork() {
  walk_after_fork(mutex_, [this] {
    for (const auto& [port, sockets] : sockets_) {
      for (const auto& socket : sockets) socket->abandon_after_fork();
    }
  });
}

}  // namespace weft::device
