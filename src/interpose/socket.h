// A TCP socket of the program's that is a stream.
//
// Until it listens or connects it is a kernel socket, which knows what options there are and what
// they may be; that one is kept aside for good, to be asked. The program's number is the shadow's.
// Where the kernel itself must carry the bytes (another process or stdio uses the descriptor, or
// the peer speaks plain TCP), the shadow becomes a pipe and a relay stands between it and the
// stream; then all calls are the kernel's.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interpose/descriptor.h"
#include "interpose/newcomer.h"
#include "interpose/shadow.h"
#include "weft/stream.hpp"

namespace weft::interpose {

class Listening;

// setsockopt(2)
struct Setting {
  int level;
  int name;
  std::vector<std::byte> value;
};
// What a socket that is accepted has of the one that listens.
struct Manner {
  int family = 0;
  std::vector<Setting> settings;
};
// Of a socket of the kernel's.
[[nodiscard]] Manner manner_of(int kernel);
[[nodiscard]] stream::Options options_of(const Manner& manner);

class Socket final : public stream::Stream::Watcher, public std::enable_shared_from_this<Socket> {
 public:
  enum class Phase {
    fresh,  // neither bound nor connected
    bound,
    listening,
    connecting,
    connected,
    piped,  // the kernel carries the bytes
    lost,   // was about to connect in the parent of this process, which is a child
  };

  // Both with the program's descriptor in `visible`; `type` as socket(2) has it. Throw Error.
  static std::shared_ptr<Socket> make(int family, int type, int protocol, int& visible);
  static std::shared_ptr<Socket> accepted(Manner manner, stream::Stream stream, int type,
                                          int& visible);
  Socket(int family, int type, int& visible);
  ~Socket() override = default;

  [[nodiscard]] int family() const { return family_; }
  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool nonblocking() const { return nonblocking_; }
  void set_nonblocking(bool nonblocking);
  // Null where it is not connected, nor about to be.
  [[nodiscard]] std::shared_ptr<stream::Stream> stream() const;
  [[nodiscard]] std::shared_ptr<Listening> listening() const;
  [[nodiscard]] Shadow& shadow() { return shadow_; }
  // Of a listener: whether somebody waits to be accepted, and is new.
  void show_requests(bool any, bool another);

  // --- Life (connecting.cc, listening.cc). All throw Error, or answer 0.
  void bind(const sockaddr* address, socklen_t bytes);
  void listen(int backlog);
  int connect(const stream::Address& peer);
  // Whether receiving, sending or both is over; throws Error(ENOTCONN).
  void shut_down(int how);
  [[nodiscard]] bool read_shut() const { return read_shut_; }
  [[nodiscard]] bool write_shut() const { return write_shut_; }
  [[nodiscard]] sockaddr_storage local_name() const;
  [[nodiscard]] sockaddr_storage peer_name() const;  // throws Error(ENOTCONN)

  // --- Descriptors of the program that are this socket (table.cc counts them).
  void retain() { ++descriptors_; }
  // The last one has gone: ends what there is.
  void let_go();

  // --- Options (settings.cc)
  // 0, or -1 with errno, as the kernel has it.
  int set_option(int level, int name, const void* value, socklen_t bytes);
  int get_option(int level, int name, void* value, socklen_t* bytes);
  // The kernel's socket, which knows them, and listens; -1 with errno.
  [[nodiscard]] int kernel();
  [[nodiscard]] Manner manner() const;
  [[nodiscard]] int take_error() { return error_.exchange(0); }
  // Says a loss of the connection once; after that, sending is a broken pipe.
  [[nodiscard]] bool tell_loss() { return !loss_told_.exchange(true); }
  void wants_edges() { edges_ = true; }
  [[nodiscard]] int send_timeout_ms() const { return send_timeout_ms_; }

  // --- The kernel carries the bytes (relay.cc). False where it cannot: nothing is connected.
  bool become_pipe();
  // Around fork(2): before it; in the child; for each descriptor of the child's. The child gets the
  // kernel's socket instead of one that listens.
  void share();
  void leave_to_parent();
  void become_kernel(int fd) const;

  void changed(const stream::Stream::Readiness& now) noexcept override;

 private:
  void show(const stream::Stream::Readiness& now);
  [[nodiscard]] std::string kernel_address() const;
  void apply(const Setting& setting);
  [[nodiscard]] bool resets_at_close() const;
  void start(const stream::Address& peer);
  [[nodiscard]] int await_connection();
  // What becomes of a connection that could not be made; not in a thread of the program's.
  void look_again();
  void could_not_connect(int error);
  bool fall_back(const stream::Address& peer, Descriptor plain);

  const int family_;  // manner_.family
  std::atomic<Phase> phase_{Phase::fresh};
  std::atomic<bool> nonblocking_;
  std::atomic<bool> read_shut_{false};
  std::atomic<bool> write_shut_{false};
  std::atomic<bool> edges_{false};
  std::atomic<bool> loss_told_{false};
  std::atomic<bool> success_told_{false};  // by connect(2)
  std::atomic<bool> awaited_{false};       // connect(2) itself says whether it went well
  std::atomic<int> error_{0};
  std::atomic<int> send_timeout_ms_{-1};
  std::atomic<int> descriptors_{0};

  mutable std::mutex mutex_;  // of what follows; never held while a stream is called
  Descriptor kernel_;
  Manner manner_;  // what the program has set
  stream::Address peer_;
  std::optional<sockaddr_storage> local_name_;  // where they are known for good
  std::optional<sockaddr_storage> peer_name_;
  std::shared_ptr<Listening> listening_;
  std::shared_ptr<stream::Stream> stream_;

  std::mutex levels_;  // of the shadow
  Shadow shadow_;
  std::uint64_t arrived_bytes_ = 0;
  bool ended_ = false;
  // What a child of this process closes: the other end of the pipe, and what is behind the relay.
  int pipe_fd_ = -1;
};

// --- What the whole process has (process.cc)

// WEFT_SOCKETS=fallback
[[nodiscard]] bool may_fall_back();
void say(const std::string& sentence);
// Without signals: those are the program's.
void start_thread(void (*run)(void*), void* argument);
template <typename Call>
void start_thread(Call call) {
  auto* const kept = new Call(std::move(call));
  start_thread(
      [](void* argument) {
        const std::unique_ptr<Call> owned(static_cast<Call*>(argument));
        (*owned)();
      },
      kept);
}
// Something that the process waits for when it ends.
class Pending {
 public:
  struct Process;
  Pending();
  ~Pending();
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

 private:
  Process* const process_;
};
// Closes it in the background; the process waits for that when it ends.
void close_later(std::shared_ptr<stream::Stream> stream, bool at_once);

}  // namespace weft::interpose
