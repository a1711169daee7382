// setsockopt(2) and getsockopt(2): the kernel's socket says what there is and what it may be, and
// keeps it; some of it is obeyed by the stream.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "interpose/listening.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

constexpr std::uint32_t standard_buffer_bytes = 128 * 1024;

int to_int(const std::vector<std::byte>& value, int standard) {
  int number = standard;
  if (value.size() >= sizeof number) std::memcpy(&number, value.data(), sizeof number);
  return number;
}

int timeout_ms_of(const std::vector<std::byte>& value) {
  timeval time{};
  if (value.size() < sizeof time) return -1;
  std::memcpy(&time, value.data(), sizeof time);
  const auto ms = time.tv_sec * 1000 + (time.tv_usec + 999) / 1000;
  return ms == 0 ? -1 : static_cast<int>(std::min<long>(ms, 1'000'000'000));
}

bool is_keepalive(int level, int name) {
  return (level == SOL_SOCKET && name == SO_KEEPALIVE) ||
         (level == IPPROTO_TCP &&
          (name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT));
}

// What the kernel would do for its own connections, and nobody does for ours.
bool is_impossible(int level, int name) {
  if (level == SOL_SOCKET) return name == SO_ZEROCOPY;
  return level == IPPROTO_TCP &&
         (name == TCP_ULP || name == TCP_REPAIR || name == TCP_MD5SIG || name == TCP_FASTOPEN);
}

int fail_with(int error) {
  errno = error;
  return -1;
}

const Setting* setting(const Manner& manner, int level, int name) {
  const auto found = std::find_if(
      manner.settings.begin(), manner.settings.end(),
      [&](const Setting& known) { return known.level == level && known.name == name; });
  return found == manner.settings.end() ? nullptr : &*found;
}

}  // namespace

int Socket::kernel() {
  const std::lock_guard lock(mutex_);
  if (kernel_.valid()) return kernel_.get();
  Descriptor made(next::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!made.valid()) return -1;
  for (const Setting& setting : manner_.settings) {
    next::setsockopt(made.get(), setting.level, setting.name, setting.value.data(),
                     static_cast<socklen_t>(setting.value.size()));
  }
  kernel_ = out_of_the_way(std::move(made));
  return kernel_.get();
}

Manner Socket::manner() const {
  const std::lock_guard lock(mutex_);
  return manner_;
}

Manner manner_of(int kernel) {
  static constexpr std::array<std::pair<int, int>, 7> known = {
      std::pair(SOL_SOCKET, SO_KEEPALIVE),   std::pair(IPPROTO_TCP, TCP_KEEPIDLE),
      std::pair(IPPROTO_TCP, TCP_KEEPINTVL), std::pair(IPPROTO_TCP, TCP_KEEPCNT),
      std::pair(SOL_SOCKET, SO_LINGER),      std::pair(SOL_SOCKET, SO_RCVTIMEO),
      std::pair(SOL_SOCKET, SO_SNDTIMEO)};
  Manner found;
  socklen_t bytes = sizeof found.family;
  next::getsockopt(kernel, SOL_SOCKET, SO_DOMAIN, &found.family, &bytes);
  for (const auto& [level, name] : known) {
    std::vector<std::byte> value(sizeof(timeval));
    bytes = static_cast<socklen_t>(value.size());
    if (next::getsockopt(kernel, level, name, value.data(), &bytes) != 0) continue;
    value.resize(bytes);
    found.settings.push_back({level, name, std::move(value)});
  }
  return found;
}

stream::Options options_of(const Manner& manner) {
  const auto number = [&](int level, int name, int standard) {
    const Setting* known = setting(manner, level, name);
    return known ? to_int(known->value, standard) : standard;
  };
  const auto buffer = [&](int name) {
    const auto wanted = static_cast<std::uint32_t>(std::max(number(SOL_SOCKET, name, 0), 0));
    return std::clamp(wanted, standard_buffer_bytes, stream::max_buffer_bytes);
  };
  stream::Options options;
  options.send_buffer_bytes = buffer(SO_SNDBUF);
  options.receive_buffer_bytes = buffer(SO_RCVBUF);
  if (number(SOL_SOCKET, SO_KEEPALIVE, 0) != 0) {
    using std::chrono::seconds;
    options.keepalive =
        stream::Keepalive{seconds(number(IPPROTO_TCP, TCP_KEEPIDLE, 7200)),
                          seconds(number(IPPROTO_TCP, TCP_KEEPINTVL, 75)),
                          static_cast<std::uint32_t>(number(IPPROTO_TCP, TCP_KEEPCNT, 9))};
  }
  return options;
}

bool Socket::resets_at_close() const {
  const std::lock_guard lock(mutex_);
  const Setting* known = setting(manner_, SOL_SOCKET, SO_LINGER);
  linger lingering{};
  if (!known || known->value.size() < sizeof lingering) return false;
  std::memcpy(&lingering, known->value.data(), sizeof lingering);
  return lingering.l_onoff != 0 && lingering.l_linger == 0;
}

// With the lock. The shadow waits for receiving, we for sending.
void Socket::apply(const Setting& setting) {
  if (setting.level != SOL_SOCKET) return;
  if (setting.name == SO_RCVTIMEO) {
    shadow_.set_receive_timeout(setting.value.data(), static_cast<unsigned>(setting.value.size()));
  }
  if (setting.name == SO_SNDTIMEO) send_timeout_ms_ = timeout_ms_of(setting.value);
}

int Socket::set_option(int level, int name, const void* value, socklen_t bytes) {
  if (is_impossible(level, name)) return fail_with(EOPNOTSUPP);
  const int fd = kernel();
  if (fd < 0 || next::setsockopt(fd, level, name, value, bytes) != 0) return -1;
  const auto* first = static_cast<const std::byte*>(value);
  Setting made{level, name, value ? std::vector(first, first + bytes) : std::vector<std::byte>()};
  std::shared_ptr<stream::Stream> stream;
  stream::Options options;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(manner_.settings,
                  [&](const Setting& known) { return known.level == level && known.name == name; });
    manner_.settings.push_back(made);
    if (phase_ != Phase::piped) apply(made);
    stream = stream_;
    options = options_of(manner_);
  }
  if (stream && is_keepalive(level, name)) {
    auto changed = stream->options();
    changed.keepalive = options.keepalive;
    stream->set_options(changed);
  }
  return 0;
}

int Socket::get_option(int level, int name, void* value, socklen_t* bytes) {
  const int fd = kernel();
  if (fd < 0) return -1;
  const int done = next::getsockopt(fd, level, name, value, bytes);
  if (done != 0 || !value || !bytes) return done;
  const auto put = [&](const auto& found) {
    std::memcpy(value, &found, std::min<std::size_t>(sizeof found, *bytes));
  };
  if (level == SOL_SOCKET && name == SO_ERROR && phase_ != Phase::piped) {
    int error = take_error();
    if (const auto stream = this->stream(); stream && error == 0 && phase_ == Phase::connected &&
                                            stream->state() == stream::State::failed &&
                                            tell_loss()) {
      error = stream->error_number();
    }
    put(error);
  }
  // What the kernel's socket counts is nothing; that it is connected is true.
  if (level == IPPROTO_TCP && name == TCP_INFO && phase_ == Phase::connected && *bytes > 0) {
    static_cast<unsigned char*>(value)[0] = TCP_ESTABLISHED;
  }
  return 0;
}

}  // namespace weft::interpose
