// What a Stream is made of. One lock covers it all; bytes are copied without it, for at most one
// call sends and one receives at a time.
//
// Who polls: a call that has to wait does so itself, for a short time. Then, and while somebody
// depends on the descriptor, a watcher or an event queue, or we owe the peer something that could
// not be sent, the completion queue is armed and the pump does it.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stream/event_fd.h"
#include "stream/events.h"
#include "stream/flow.h"
#include "stream/greeting_wire.h"
#include "stream/maps.h"
#include "stream/pieces.h"
#include "stream/pump.h"
#include "stream/wire.h"
#include "weft/stream/stream.hpp"

namespace weft::stream::detail {

// A request to connect that was not answered yet.
struct Asked {
  Asked(verbs::Id from, StreamGreeting said, const Options& with)
      : id(std::move(from)), greeting(std::move(said)), options(with) {}
  verbs::Id id;
  StreamGreeting greeting;
  Options options;
  bool answered = false;
};

class Endpoint final : public Attendant, public std::enable_shared_from_this<Endpoint> {
 public:
  explicit Endpoint(const Options& options);
  ~Endpoint() override { leave_pump(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void set_options(const Options& options);
  [[nodiscard]] Options options();

  // --- Connecting
  void bind(const Address& local);
  void start(const Address& peer, std::span<const std::byte> private_data);
  void accept(Asked& asked, std::span<const std::byte> private_data);
  [[nodiscard]] bool await_connected(const Deadline& deadline);
  [[nodiscard]] State state();
  [[nodiscard]] int error_number();
  [[nodiscard]] std::span<const std::byte> peer_private_data();
  [[nodiscard]] Variant variant();
  [[nodiscard]] const verbs::Id& id();
  [[nodiscard]] const verbs::ProtectionDomain& domain();

  // --- Bytes
  [[nodiscard]] Outcome send(Gather from, const Deadline& deadline);
  [[nodiscard]] Outcome send_registered(const verbs::LocalSlice& bytes, const Deadline& deadline);
  [[nodiscard]] Outcome receive(Scatter into, const Deadline& deadline, ReceiveFlags flags);
  [[nodiscard]] Outcome peek_send();
  [[nodiscard]] Outcome peek_receive();
  [[nodiscard]] std::size_t bytes_available();

  // --- Buffers of the peer's
  [[nodiscard]] std::int64_t map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                        const Deadline& deadline);
  void unmap_buffer(std::span<const std::byte> memory, const Deadline& deadline);
  [[nodiscard]] Outcome write_mapped(std::span<const std::byte> bytes, std::uint64_t offset,
                                     const Deadline& deadline);

  // --- Waiting
  [[nodiscard]] int fd();
  Stream::Readiness watch(Stream::Watcher* watcher);
  void unwatch(Stream::Watcher* watcher);
  [[nodiscard]] Stream::Readiness readiness();
  void attach(std::shared_ptr<Events> events, std::uint64_t cookie);
  void attend() noexcept override;

  // --- The end
  void finish();
  bool close(const Deadline& deadline);
  void abort();
  [[nodiscard]] Statistics statistics();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  enum class Phase { idle, resolving, connecting, open, over };
  class Turn;

  // --- Connecting (endpoint_connect.cc)
  void enter_pump(verbs::EventChannel events);
  void leave_pump();
  void answer(const StreamGreeting& peer, std::span<const std::byte> private_data);
  void open_wire();
  void open_flow(StreamGreeting peer, std::uint8_t variant);
  void look_at_connection();
  void handle(const verbs::ConnectionEvent& event);
  void established(const verbs::ConnectionEvent& event);
  void rejected(const verbs::ConnectionEvent& event);
  void fail_connecting(int error, const std::string& what);
  [[nodiscard]] bool is_connecting() const {
    return phase_ == Phase::resolving || phase_ == Phase::connecting;
  }

  // --- Progress (endpoint_progress.cc)
  bool process();
  void handle(const verbs::Completion& completion);
  void received(const verbs::Completion& completion, std::uint32_t slot);
  void push_control();
  void break_off(int error);
  void violated();
  void arm();
  [[nodiscard]] bool needs_pump() const;
  void look_for_life();
  // What depends on the state is told of it; before anybody leaves.
  void leave();
  void tell();
  [[nodiscard]] Stream::Readiness readiness_now() const;
  [[nodiscard]] bool descriptor_wanted() const;
  template <typename Ready>
  bool wait(Lock& lock, const Deadline& deadline, const Ready& ready);
  bool sleep(Lock& lock, const Deadline& deadline);

  // --- Bytes (endpoint_data.cc)
  [[nodiscard]] bool can_send() const { return flow_ && flow_->can_send() && !send_error(); }
  // Why nothing can be sent or received ever again; 0 where that is not so.
  [[nodiscard]] int send_error() const;
  [[nodiscard]] int receive_error() const;
  [[nodiscard]] bool has_bytes_or_end() const;
  [[nodiscard]] Outcome refuse_send();
  // Takes the turn, then asks `post` for the number of bytes that it could post, again and again,
  // and waits in between until `can` says that it is worth it.
  template <typename Can, typename Post>
  Outcome send_all(Lock& lock, std::size_t bytes, const Deadline& deadline, const Can& can,
                   const Post& post);
  std::size_t send_piece(Lock& lock, Gather& from, std::size_t most);
  std::size_t receive_some(Lock& lock, Scatter& into, std::size_t most, bool peek);
  Outcome nothing_received(bool peek);
  void change_row(Lock& lock, std::uint32_t row, const Mapping& mapping, const Deadline& deadline);

  void disconnect();

  std::mutex mutex_;
  std::condition_variable changed_;
  Options options_;
  Phase phase_ = Phase::idle;
  bool closed_ = false;
  bool clean_ = true;
  int failure_ = 0;  // of connecting
  std::string failure_text_;
  std::vector<std::byte> refusal_;
  bool refused_ = false;
  int broken_ = 0;  // of the connection that was there
  bool settled_told_ = false;

  Pump* pump_ = nullptr;
  Pump::Token token_ = 0;
  std::optional<verbs::EventChannel> events_;
  std::optional<verbs::Id> id_;
  std::vector<std::byte> private_data_;  // of ours, until it is sent
  std::optional<Wire> wire_;
  std::optional<Flow> flow_;
  StreamGreeting peer_;
  bool disconnected_ = false;

  bool sending_ = false;
  bool receiving_ = false;
  bool end_told_ = false;
  bool send_refused_ = false;
  Maps ours_;    // what the peer may write to
  Maps theirs_;  // what we may write to

  bool armed_ = false;
  int sleepers_ = 0;
  std::unique_ptr<EventFd> descriptor_;
  std::vector<Stream::Watcher*> watchers_;
  Stream::Readiness told_;
  std::shared_ptr<Events> queue_;
  std::uint64_t cookie_ = 0;
  bool queued_settled_ = false;
  bool queued_shutdown_ = false;

  Clock::time_point heard_;
  std::optional<Clock::time_point> probed_;
  std::optional<Clock::time_point> next_look_;

  Statistics statistics_;
};

// One call at a time sends, and one receives. Made and ended with the lock held.
class Endpoint::Turn {
 public:
  // Not taken where the deadline has passed, or the stream was closed.
  Turn(Endpoint& endpoint, Lock& lock, bool& busy, const Deadline& deadline);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  [[nodiscard]] bool taken() const { return taken_; }

 private:
  Endpoint& endpoint_;
  bool& busy_;
  bool taken_ = false;
};

// True as soon as `ready` answers so; false at the deadline.
template <typename Ready>
bool Endpoint::wait(Lock& lock, const Deadline& deadline, const Ready& ready) {
  if (ready()) return true;
  process();
  if (ready()) return true;
  if (deadline.passed()) return false;
  const auto until = Clock::now() + options_.spin;
  while (Clock::now() < until) {
    lock.unlock();
    sched_yield();  // the other side may need this processor to answer
    lock.lock();
    process();
    if (ready()) return true;
  }
  ++sleepers_;
  arm();
  tell();
  while (!ready() && sleep(lock, deadline)) continue;
  --sleepers_;
  return ready();
}

}  // namespace weft::stream::detail
