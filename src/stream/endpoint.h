// Endpoint: the implementation of a Stream, shared by the handle and the stream thread.
//
// It joins four parts and gives them one lock: Connector (rdma_cm), DataChannel (bytes and
// completions), ReadinessNotifier (observers) and the registration with the stream thread. What is
// here is waiting: which call may go on, which thread polls, and which error a call returns.
//
// Bytes are copied without the lock, because at most one call sends and one receives at a time.
//
// Polling: a call that has to wait polls the completion queue itself for Options::spin. After that,
// and as long as anything needs progress in the background (needs_thread()), the queue is armed and
// the stream thread polls it.
#pragma once

#include <sched.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <span>

#include "stream/changes.h"
#include "stream/connector.h"
#include "stream/data_channel.h"
#include "stream/event_queue_core.h"
#include "stream/fork_handler.h"
#include "stream/pieces.h"
#include "stream/readiness_notifier.h"
#include "stream/stream_thread.h"
#include "verbs/wait_queue.h"
#include "weft/stream/stream.hpp"

namespace weft::stream::detail {

// Thread-safe. Stream documents the public calls.
class Endpoint final : public IoHandler, public std::enable_shared_from_this<Endpoint> {
 public:
  explicit Endpoint(const Options& options);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void set_options(const Options& options);
  [[nodiscard]] Options options();

  // --- Connecting
  void bind(const Address& local);
  void start(const Address& peer, std::span<const std::byte> private_data);
  void accept(PendingRequest& request, std::span<const std::byte> private_data);
  [[nodiscard]] bool await_connected(const Deadline& deadline);
  [[nodiscard]] State state();
  [[nodiscard]] int error_number();
  [[nodiscard]] std::span<const std::byte> peer_private_data();
  [[nodiscard]] Variant variant();
  [[nodiscard]] const verbs::Id& id();
  [[nodiscard]] const verbs::ProtectionDomain& domain();

  // --- Bytes
  [[nodiscard]] Transfer send(Gather from, const Deadline& deadline);
  [[nodiscard]] Transfer send_registered(const verbs::LocalSlice& bytes, const Deadline& deadline);
  [[nodiscard]] Transfer receive(Scatter into, const Deadline& deadline, ReceiveFlags flags);
  [[nodiscard]] Transfer peek_send();
  [[nodiscard]] View view(const Deadline& deadline);
  void consume(std::size_t bytes);
  [[nodiscard]] Transfer peek_receive();
  [[nodiscard]] std::size_t bytes_available();

  // --- Buffers mapped by the peer
  [[nodiscard]] std::int64_t map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                        const Deadline& deadline);
  void unmap_buffer(std::span<const std::byte> memory, const Deadline& deadline);
  [[nodiscard]] Transfer write_mapped(std::span<const std::byte> bytes, std::uint64_t offset,
                                      const Deadline& deadline);

  // --- Waiting
  [[nodiscard]] int fd();
  [[nodiscard]] int send_fd();
  Stream::Readiness watch(Stream::Watcher* watcher);
  void unwatch(Stream::Watcher* watcher);
  [[nodiscard]] Stream::Readiness readiness();
  void look();
  bool report_again();
  void attach(std::shared_ptr<EventQueueCore> queue, std::uint64_t cookie);
  void on_io() noexcept override;
  // The coroutines that send, and those that receive, in the order of their turns.
  [[nodiscard]] verbs::detail::WaitQueue& send_turns() { return turns().send; }
  [[nodiscard]] verbs::detail::WaitQueue& receive_turns() { return turns().receive; }

  // --- The end
  void finish();
  void stop_receiving();
  bool close(const Deadline& deadline);
  bool close_if_sent();
  void abort();
  [[nodiscard]] Statistics statistics();

 private:
  void begin_anew_in_child() noexcept;

  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  using Phase = Connector::Phase;
  class Turn;

  // --- Progress (endpoint_progress.cc)
  void process();
  void process_placed();
  void note_progress();
  bool look_for_changes();
  void process_connection_events();
  void handle(const verbs::ConnectionEvent& event);
  void check_keepalive();
  void check_idle_rings();
  void plan_idle_check();
  void arm();
  [[nodiscard]] bool take_completion_event();
  [[nodiscard]] bool needs_thread() const;
  [[nodiscard]] WakeBy wake_for_bytes() const;
  // Each call ends with this: it arms the queue where needed and notifies the observers.
  void leave();
  void notify();
  [[nodiscard]] Stream::Readiness readiness_now() const;
  [[nodiscard]] bool descriptor_wanted() const;
  [[nodiscard]] bool refused_send_can_go_on() const;
  template <typename Ready>
  bool wait(Lock& lock, const Deadline& deadline, const Ready& ready);
  bool sleep(Lock& lock, const Deadline& deadline);

  // --- Bytes (endpoint_data.cc)
  [[nodiscard]] bool can_send() const {
    return connector_.phase() == Phase::open && channel_.can_send() && !send_error();
  }
  // The errno that a call returns which would send, or receive; 0 if the stream still can.
  [[nodiscard]] int send_error() const;
  [[nodiscard]] int receive_error() const;
  [[nodiscard]] bool has_bytes_or_end() const;
  [[nodiscard]] bool is_at_end() const { return channel_.end_received() || receiving_stopped_; }
  [[nodiscard]] Transfer refuse_send();
  void note_result_reported();
  [[nodiscard]] bool can_send_end() const;
  void close_connection(Lock& lock);
  void await_completion(Lock& lock);
  template <typename Can, typename Post>
  Transfer send_all(Lock& lock, std::size_t bytes, const Deadline& deadline, const Can& can,
                    const Post& post);
  bool await_bytes(Lock& lock, const Deadline& deadline, std::size_t enough);
  Transfer nothing_received(bool peek);

  // --- Mapped buffers (endpoint_mapped.cc)
  void change_row(Lock& lock, std::uint32_t row, const Mapping& mapping, const Deadline& deadline);

  // Thread-safe by themselves.
  struct Turns {
    verbs::detail::WaitQueue send;
    verbs::detail::WaitQueue receive;
  };
  [[nodiscard]] Turns& turns();

  std::mutex mutex_;              // guards all that follows
  std::unique_ptr<Turns> turns_;  // made for the first coroutine
  Changes changed_;
  Options options_;

  // Destroyed from the last to the first: the registration before its descriptors are closed, the
  // queue pair before the rdma_cm id that it was created with.
  Connector connector_;
  DataChannel channel_;
  ReadinessNotifier notifier_;
  ThreadRegistration registration_;

  bool closed_ = false;
  bool clean_ = true;  // the result of close()
  bool sending_ = false;
  bool receiving_ = false;
  bool finishing_ = false;          // finish() waits for the calls that send
  bool receiving_stopped_ = false;  // stop_receiving()
  int completing_ = 0;              // calls that wait until what they have posted is complete
  bool row_completes_ = false;      // change_row() has posted its row, and waits for the completion
  std::size_t viewed_bytes_ = 0;    // of the last view(), that were not received since
  bool end_reported_ = false;       // a call that did not peek has returned TransferStatus::end
  bool result_reported_ = false;    // a call has returned the result of connecting
  bool send_refused_ = false;       // the last send moved fewer bytes than it was given
  bool armed_ = false;              // the completion queue will raise an event
  int sleepers_ = 0;                // calls that wait for `changed_`
  bool brief_ = false;              // the last wait that slept was over soon: see wait()

  ForkHandler fork_handler_;
};

// The right to send, or to receive, which one call at a time has. Created and destroyed with the
// lock held.
class Endpoint::Turn {
 public:
  // Waits for the call that has the turn; `busy` is true while one has it. Not taken if the
  // deadline passes or the stream is closed first.
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

// Returns true as soon as `ready` does, and false at the deadline. Polls for Options::spin, or for
// twice as long after a wait that was over within that time: to sleep and be woken takes so long
// that a peer which answers at once would find this side asleep each time. Then it sleeps. If it is
// the only call of the process that does, it serves the descriptors of device and streams meanwhile
// and is woken by what arrives; else the progress thread and the stream thread do.
template <typename Ready>
bool Endpoint::wait(Lock& lock, const Deadline& deadline, const Ready& ready) {
  if (ready()) return true;
  process();
  if (ready()) return true;
  if (deadline.passed()) return false;
  // In a simulation nothing comes while this thread spins. An answer to a request to connect takes
  // longer than that, as the peer makes its queue pair first.
  const bool spins = !SimulatedKernel::current() && !connector_.is_connecting();
  const auto spin = spins ? options_.spin : std::chrono::microseconds(0);
  const auto began = steady_now();
  const auto until = began + (brief_ ? 2 * spin : spin);
  while (steady_now() < until) {
    if (look_for_changes() && ready()) return true;
    lock.unlock();
    sched_yield();  // the peer may need this processor to answer
    lock.lock();
    process();
    if (ready()) return true;
  }
  ++sleepers_;
  arm();
  notify();
  while (!ready() && sleep(lock, deadline)) continue;
  --sleepers_;
  const bool done = ready();
  brief_ = done && steady_now() - began < 2 * spin;
  return done;
}

}  // namespace weft::stream::detail
