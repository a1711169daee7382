// setsockopt(2) and getsockopt(2). The kernel socket checks and keeps all options; a stream obeys
// some of them.
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "interpose/socket.h"

namespace weft::interpose {
namespace {

bool is_keepalive(int level, int name) {
  return (level == SOL_SOCKET && name == SO_KEEPALIVE) ||
         (level == IPPROTO_TCP &&
          (name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT));
}

// Options by which the kernel would change the bytes or the connection. Refuse them: a stream
// cannot do the same, and a program must not believe that they are in effect.
bool is_unsupported(int level, int name) {
  if (level == SOL_SOCKET) return name == SO_ZEROCOPY;
  return level == IPPROTO_TCP &&
         (name == TCP_ULP || name == TCP_REPAIR || name == TCP_MD5SIG || name == TCP_FASTOPEN);
}

// A flag: any int is a valid value, so that no kernel socket is needed to find that out.
bool is_valid_flag(int level, int name, const void* value, socklen_t bytes) {
  const bool flag = (level == IPPROTO_TCP && name == TCP_NODELAY) ||
                    (level == SOL_SOCKET && (name == SO_KEEPALIVE || name == SO_REUSEADDR));
  return flag && value && bytes >= sizeof(int);
}

int fail_with(int error) {
  errno = error;
  return -1;
}

}  // namespace

int Socket::kernel_fd() {
  const std::lock_guard lock(mutex_);
  return kernel_.open();
}

void Socket::renew_kernel_socket() {
  const std::lock_guard lock(mutex_);
  kernel_.close();  // the next use opens it again, with its options
}

InheritedOptions Socket::inherited_options() const {
  const std::lock_guard lock(mutex_);
  return kernel_.options();
}

// With mutex_ held. accept(2) blocks in the visible socket, which obeys SO_RCVTIMEO itself;
// receiving and sending block in poll(2), with a timeout of their own.
void Socket::apply(const SocketOption& option) {
  if (option.level != SOL_SOCKET) return;
  if (option.name == SO_RCVTIMEO) {
    visible_.set_receive_timeout(option.value.data(), static_cast<unsigned>(option.value.size()));
  }
  if (option.name == SO_RCVTIMEO) timeouts_.receive_ms = timeout_ms_of(option);
  if (option.name == SO_SNDTIMEO) timeouts_.send_ms = timeout_ms_of(option);
}

// With the lock, so that open_visible() does not replace the file meanwhile.
int Socket::set_kernel_option(int level, int name, const void* value, socklen_t bytes) {
  const std::lock_guard lock(mutex_);
  // It gets the option where it is opened later. An accepted socket has none at first.
  if (!kernel_.is_open() && is_valid_flag(level, name, value, bytes)) return 0;
  const int fd = kernel_.open();
  return fd < 0 ? -1 : next::setsockopt(fd, level, name, value, bytes);
}

int Socket::set_option(int level, int name, const void* value, socklen_t bytes) {
  if (is_unsupported(level, name)) return fail_with(EOPNOTSUPP);
  if (set_kernel_option(level, name, value, bytes) != 0) return -1;
  const auto* first = static_cast<const std::byte*>(value);
  SocketOption option{level, name, {}};
  if (value) option.value.assign(first, first + bytes);
  std::shared_ptr<stream::Stream> stream;
  stream::Options options;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::relayed) apply(option);
    kernel_.record(std::move(option));
    stream = stream_;
    options = stream_options(kernel_.options());
  }
  // The stream is called without mutex_. Of its options only those of keepalive are changed later.
  if (stream && is_keepalive(level, name)) {
    auto changed = stream->options();
    changed.keepalive = options.keepalive;
    stream->set_options(changed);
  }
  return 0;
}

// SO_ERROR: the error of a non-blocking connect(2), or the loss of the connection if it was not
// reported yet.
int Socket::take_error() {
  if (const int error = connect_.error.exchange(0)) return error;
  return is_lost() && claim_loss_report() ? stream()->error_number() : 0;
}

int Socket::get_option(int level, int name, void* value, socklen_t* bytes) {
  const int fd = kernel_fd();
  if (fd < 0) return -1;
  const int done = next::getsockopt(fd, level, name, value, bytes);
  if (done != 0 || !value || !bytes) return done;
  if (level == SOL_SOCKET && name == SO_ERROR && phase_ != Phase::relayed) {
    const int error = take_error();
    std::memcpy(value, &error, std::min<std::size_t>(sizeof error, *bytes));
  }
  // The kernel socket's counters are all zero, but programs check the state: it is connected.
  if (level == IPPROTO_TCP && name == TCP_INFO && phase_ == Phase::connected && *bytes > 0) {
    static_cast<unsigned char*>(value)[0] = TCP_ESTABLISHED;
  }
  return 0;
}

}  // namespace weft::interpose
