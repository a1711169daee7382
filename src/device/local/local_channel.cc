#include "device/local/local_channel.h"

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/after_fork.h"
#include "base/own_descriptors.h"
#include "device/addresses.h"
#include "device/device.h"
#include "device/system_messages.h"

namespace weft::device {
namespace {

// Offers of connections that failed in their handshake stay behind; the oldest are dropped.
constexpr std::size_t most_offers = 256;
constexpr std::size_t most_descriptors = 8;
constexpr std::size_t most_bytes = 2048;

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

// A leading zero byte puts the name into the abstract namespace, which belongs to the network
// namespace, as TCP ports do.
Name name_of(const std::string& text) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const std::size_t room = sizeof name.address.sun_path - 1;
  const std::size_t count = std::min(text.size(), room);
  std::memcpy(name.address.sun_path + 1, text.data(), count);
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return name;
}

// Derived from the TCP listener, so that nothing has to be exchanged. Another user may take a name,
// but not pass the check of peer().
std::string listener_name(const sockaddr_storage& address) {
  return "weft-local/" + to_string(address);
}

// A socket for both families shows an IPv4 address in its mapped form.
std::string plain(const sockaddr_storage& address) {
  sockaddr_storage unmapped = address_of(gid_of(address));
  set_port(unmapped, port_of(address));
  return to_string(unmapped);
}

// The same text at both ends: active side first.
std::string connection_name(const sockaddr_storage& active, const sockaddr_storage& passive) {
  return plain(active) + ">" + plain(passive);
}

sockaddr_storage any_address(int family, std::uint16_t port) {
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  set_port(any, port);
  return any;
}

// SOCK_SEQPACKET: messages keep their limits, and the end of the peer is noticed.
sys::Descriptor unix_socket() {
  const int made = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  return sys::Descriptor(made < 0 ? -1 : made);
}

// Looks without taking anything.
// POLLRDHUP, because a channel with an unread name would look readable otherwise.
bool has_closed(const LocalChannel& channel) {
  pollfd entry{channel.fd(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// By SO_PEERCRED (unix(7)) the kernel names the process that connected or listened.
ucred peer_of(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  return sys::get_option(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0 ? ucred{}
                                                                                    : credentials;
}

bool connect_to(const sys::Descriptor& socket, const std::string& text) {
  const Name name = name_of(text);
  const auto* generic = reinterpret_cast<const sockaddr*>(&name.address);
  return sys::connect(socket.get(), generic, name.bytes) >= 0;
}

}  // namespace

// The kernel keeps the credentials of the moment in which the channel was connected, so one read is
// enough.
LocalChannel::LocalChannel(sys::Descriptor socket)
    : socket_(std::move(socket)), peer_(socket_.valid() ? peer_of(socket_.get()) : ucred{}) {}

// This process may have changed its user since then, so that is compared each time. A process
// number of 0 comes from another namespace.
pid_t LocalChannel::peer() const {
  return peer_.pid != 0 && peer_.uid == ::geteuid() ? peer_.pid : 0;
}

// A listener on one address has precedence over one on all, as in TCP. A socket whose connect(2)
// has failed may try the next name.
LocalChannel LocalChannel::dial(const TcpEnds& tcp) {
  if (!tcp.within_host()) return {};
  const std::uint16_t port = port_of(tcp.remote);
  sys::Descriptor socket;
  for (const sockaddr_storage& address :
       {tcp.remote, any_address(AF_INET, port), any_address(AF_INET6, port)}) {
    if (!socket.valid()) socket = unix_socket();
    if (!socket.valid()) return {};
    if (!connect_to(socket, listener_name(address))) continue;
    LocalChannel channel(std::move(socket));
    // Another user's process listens there.
    if (channel.peer() == 0) continue;
    const std::string name = connection_name(tcp.local, tcp.remote);
    return channel.send(std::as_bytes(std::span(name))) ? std::move(channel) : LocalChannel();
  }
  return {};
}

bool LocalChannel::send(std::span<const std::byte> message, std::span<const int> descriptors) {
  iovec piece{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_descriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    // The kernel duplicates the descriptors into the receiver: unix(7), SCM_RIGHTS.
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  return sys::send_message(socket_.get(), header) == static_cast<std::ptrdiff_t>(message.size());
}

// A full channel needs no further wake-up, so the result does not matter.
void LocalChannel::wake() {
  constexpr std::byte token{1};
  (void)send({&token, 1});
}

namespace {

// Room for one message with its descriptors, which the kernel fills.
class Reception {
 public:
  [[nodiscard]] msghdr prepare() {
    piece_ = {bytes_.data(), bytes_.size()};
    msghdr header{};
    header.msg_iov = &piece_;
    header.msg_iovlen = 1;
    header.msg_control = control_.data();
    header.msg_controllen = control_.size();
    return header;
  }

  // What has come, of `size` bytes. All descriptors are taken into ownership, also where the
  // message is wrong: otherwise they would stay open.
  [[nodiscard]] LocalChannel::Message take(msghdr& header, std::size_t size) const {
    LocalChannel::Message message;
    message.bytes.assign(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size));
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
        message.descriptors.emplace_back(own_descriptors::moved_high(fd));
      }
    }
    return message;
  }

 private:
  // Not set to zero: the kernel says how much it has written.
  std::array<std::byte, most_bytes> bytes_;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_descriptors * sizeof(int))> control_;
  iovec piece_{};
};

}  // namespace

// Any error but these is as good as the end.
std::optional<LocalChannel::Message> LocalChannel::receive() {
  Reception reception;
  msghdr header = reception.prepare();
  const auto got = sys::receive_message(socket_.get(), header);
  if (got == -EAGAIN || got == -EINTR) return std::nullopt;
  if (got < 0) return Message{};
  return reception.take(header, static_cast<std::size_t>(got));
}

// One call in place of one for each message, and of a last one that finds nothing.
std::vector<LocalChannel::Message> LocalChannel::receive_several() {
  std::array<Reception, several> receptions;
  std::array<mmsghdr, several> headers{};
  for (std::size_t i = 0; i < several; ++i) headers[i].msg_hdr = receptions[i].prepare();
  const int got = sys::receive_messages(socket_.get(), headers);
  std::vector<Message> messages;
  if (got == -EAGAIN || got == -EINTR) return messages;
  if (got <= 0) return std::vector<Message>(1);
  messages.reserve(static_cast<std::size_t>(got));
  for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
    messages.push_back(receptions[i].take(headers[i].msg_hdr, headers[i].msg_len));
  }
  return messages;
}

// --- Listeners -----------------------------------------------------------------------------------

bool LocalListeners::add(int tcp_listener) {
  sockaddr_storage address{};
  if (sys::local_address(tcp_listener, &address) < 0) return false;
  const std::string text = listener_name(address);
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    // The same TCP listener may be known twice (Listener::announce()); one socket serves both.
    if (entry.name != text) continue;
    ++entry.users;
    return true;
  }
  sys::Descriptor socket = unix_socket();
  const Name name = name_of(text);
  const auto* generic = reinterpret_cast<const sockaddr*>(&name.address);
  if (!socket.valid() || sys::bind(socket.get(), generic, name.bytes) < 0) return false;
  if (sys::listen(socket.get(), SOMAXCONN) < 0) return false;
  entries_.push_back({.name = text, .port = port_of(address), .socket = std::move(socket)});
  return true;
}

void LocalListeners::remove(int tcp_listener) {
  sockaddr_storage address{};
  if (sys::local_address(tcp_listener, &address) < 0) return;
  const std::string text = listener_name(address);
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](Entry& entry) { return entry.name == text && --entry.users == 0; });
}

// Drops the offers whose active side has closed. An offer without a name is asked again: its active
// side is between connect() and send().
void LocalListeners::accept_until(std::uint16_t port, const std::string& connection) {
  std::erase_if(offers_, [](const Offer& offer) { return has_closed(offer.channel); });
  for (Offer& offer : offers_) {
    if (offer.connection.empty()) take_name(offer);
    if (offer.connection == connection) return;
  }
  for (Entry& entry : entries_) {
    if (entry.port != port) continue;
    sockaddr_storage from{};
    // A flood of connections does not keep this end here: an offer that is there is in the queue.
    for (int i = 0; i <= SOMAXCONN; ++i) {
      const int accepted = sys::accept(entry.socket.get(), &from);
      if (accepted < 0) break;
      LocalChannel channel{sys::Descriptor(accepted)};
      // Closed at once: only processes of this user are served.
      if (channel.peer() == 0) {
        ++refusals_.local_other_user;
        continue;
      }
      offers_.push_back({.connection = {}, .channel = std::move(channel)});
      take_name(offers_.back());
      const bool found = offers_.back().connection == connection;
      if (offers_.size() > most_offers) {
        offers_.pop_front();
        ++refusals_.local_dropped;
      }
      // Those behind it belong to other connections, which look for them.
      if (found) return;
    }
  }
}

void LocalListeners::take_name(Offer& offer) {
  const auto name = offer.channel.receive();
  if (!name) return;
  offer.connection.assign(reinterpret_cast<const char*>(name->bytes.data()), name->bytes.size());
}

LocalChannel LocalListeners::take(const TcpEnds& tcp) {
  if (!tcp.within_host()) return {};
  const std::lock_guard lock(mutex_);
  if (entries_.empty() && offers_.empty()) return {};
  // This end is the passive one.
  const std::string name = connection_name(tcp.remote, tcp.local);
  accept_until(port_of(tcp.local), name);
  const auto found = std::find_if(offers_.begin(), offers_.end(),
                                  [&](const Offer& offer) { return offer.connection == name; });
  if (found == offers_.end()) return {};
  LocalChannel channel = std::move(found->channel);
  offers_.erase(found);
  return channel;
}

void LocalListeners::abandon_after_fork() {
  walk_after_fork(mutex_, [this] {
    for (Entry& entry : entries_) entry.socket.reset();
    for (Offer& offer : offers_) offer.channel.close();
  });
}

}  // namespace weft::device
