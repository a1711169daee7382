// The object of an rsocket: rsocket(7). Its number is that of an eventfd, which only reserves the
// number: the kernel's calls on it do nothing useful.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "dropin/datagram_socket.h"
#include "dropin/rsocket_listener.h"
#include "stream/fork_handler.h"
#include "weft/stream.hpp"

namespace weft::dropin {

// The values that rsetsockopt() stores for rgetsockopt().
struct SocketSettings {
  int reuse_address = 0;
  int out_of_band_inline = 0;
  int no_delay = 0;
  int v6_only = 0;
  int inline_bytes = 64;
  int keepalive = 0;
  int keepalive_idle_s = 7200;
  int keepalive_interval_s = 75;
  int keepalive_probes = 9;
  linger lingering{};
};

struct Rsocket {
  Rsocket(int address_family, int socket_type, bool without_waiting);

  // The keepalive option for new streams, from `settings`.
  [[nodiscard]] std::optional<stream::Keepalive> keepalive() const;
  [[nodiscard]] Deadline deadline(int flags) const {
    return nonblocking || (flags & MSG_DONTWAIT) ? Deadline::now() : Deadline::never();
  }
  // Null before bind, listen or connect made the object. rshutdown(), and rconnect() after an
  // attempt that has failed, may replace it.
  [[nodiscard]] std::shared_ptr<stream::Stream> get_stream() const;
  [[nodiscard]] std::shared_ptr<RsocketListener> get_listener() const;
  [[nodiscard]] std::shared_ptr<DatagramSocket> get_datagrams() const;

  // Calls the watcher when the objects above or the flags below have changed, which streams and
  // datagram sockets do not report. It must live until unwatch().
  void watch(stream::Stream::Watcher* watcher);
  void unwatch(stream::Stream::Watcher* watcher);
  void notify();
  void notify_locked();  // with `mutex` held

  const int family;
  const int type;  // SOCK_STREAM or SOCK_DGRAM
  std::atomic<bool> nonblocking;
  std::atomic<bool> read_shut{false};
  std::atomic<bool> write_shut{false};
  std::atomic<bool> error_reported{false};  // the stream's error, by SO_ERROR or rconnect()
  bool accepted = false;                    // not changed once it has a number

  mutable std::mutex mutex;  // guards the members below
  stream::Options options;
  SocketSettings settings;
  std::optional<sockaddr_storage> bound;      // by rbind(), for each attempt to connect
  std::shared_ptr<RsocketListener> listener;  // bound, or listening
  std::shared_ptr<stream::Stream> stream;
  std::shared_ptr<DatagramSocket> datagrams;  // bound
  // What riomap() was given without PROT_WRITE, until riounmap().
  std::vector<std::span<const std::byte>> local_maps;

 private:
  std::vector<stream::Stream::Watcher*> watchers_;
  stream::detail::ForkHandler fork_handler_{
      this, [](void* self) noexcept { static_cast<Rsocket*>(self)->begin_anew_in_child(); }};
  void begin_anew_in_child() noexcept;
};

// A number that no rsocket has yet. Frees it, unless give_to() was called.
class RsocketNumber {
 public:
  RsocketNumber();  // throws Error where no descriptor is left
  ~RsocketNumber();
  RsocketNumber(const RsocketNumber&) = delete;
  RsocketNumber& operator=(const RsocketNumber&) = delete;
  [[nodiscard]] int give_to(std::shared_ptr<Rsocket> socket);

 private:
  int descriptor_;
};

// Null if the descriptor is not an rsocket. take_rsocket() also removes it, so that the number must
// be released afterwards.
[[nodiscard]] std::shared_ptr<Rsocket> find_rsocket(int descriptor);
[[nodiscard]] std::shared_ptr<Rsocket> take_rsocket(int descriptor);
// Frees the number.
void release_rsocket(int descriptor);

// Throws Error(EINVAL) or Error(EAFNOSUPPORT).
[[nodiscard]] stream::Address to_address(const sockaddr* address, socklen_t bytes);
[[nodiscard]] DatagramAddress datagram_address(const sockaddr* address, socklen_t bytes);
[[nodiscard]] stream::Address any_address(const Rsocket& socket);
// Binds the socket to a free port if it is not bound yet. Throws Error.
[[nodiscard]] std::shared_ptr<DatagramSocket> need_datagrams(Rsocket& socket);
// The address as this socket names it: one of AF_INET6 maps those of IPv4, as in ipv6(7).
[[nodiscard]] sockaddr_storage named_by(const Rsocket& socket, const sockaddr_storage& address);
// Copies as much as `*bytes` has room for, and sets it to the whole size.
void give_address(const sockaddr_storage& from, sockaddr* address, socklen_t* bytes);
[[nodiscard]] const sockaddr_storage& local_of(const verbs::Id& id);
[[nodiscard]] const sockaddr_storage& peer_of(const verbs::Id& id);

// Turns exceptions into -1 and errno: none may cross the C ABI.
template <typename Call>
auto guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const Error& error) {
    errno = error.error_number() == ECANCELED ? EBADF : error.error_number();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (...) {
    errno = EIO;
  }
  return static_cast<decltype(call())>(-1);
}

inline int fail_with(int error) {
  errno = error;
  return -1;
}

// Calls `call` with the rsocket of the descriptor. Fails with EBADF if there is none.
template <typename Call>
auto with_rsocket(int descriptor, const Call& call) -> decltype(call(*find_rsocket(0))) {
  return guarded([&] {
    const auto socket = find_rsocket(descriptor);
    if (!socket) throw Error(EBADF, "not an rsocket");
    return call(*socket);
  });
}

}  // namespace weft::dropin
