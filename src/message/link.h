// Link: the implementation of a Connection. It drives a Session over a queue pair, calls the
// application's handlers, and takes the connection from its first step to its end.
//
// The parts of the work have objects of their own: LinkTransport (verbs objects), Session (the
// protocol, without I/O), SendSlots and ReceiveSlots (memory of what is posted), MessageFetcher
// (RDMA Reads of long messages), WaiterList (coroutines), Liveness (keepalive), LinkEnd (the cause
// of the end).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "message/early_sends.h"
#include "message/link_end.h"
#include "message/link_transport.h"
#include "message/liveness.h"
#include "message/loop_core.h"
#include "message/message_fetcher.h"
#include "message/receive_slots.h"
#include "message/record.h"
#include "message/send_slots.h"
#include "message/session.h"
#include "message/waiter_list.h"
#include "verbs/failure.h"
#include "weft/message/connection.hpp"

namespace weft::message::detail {

// Owned by its loop until it has ended, and by the handles of the application. Belongs to the
// loop's thread, except `status` and `error` of records, which any thread may read.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // A copy of an rdma_cm event, which has to be acknowledged before the id may be destroyed.
  struct Event {
    rdma_cm_event_type type;
    int status;
    std::string name;
    std::vector<std::byte> private_data;
  };

  // Throws Error if the private data is too long.
  Link(LoopCore& loop, Handlers handlers, const Options& options);

  // --- Connecting
  void start(const Address& peer);  // throws Error
  void accept(verbs::Id id, MessageGreeting greeting, CountedConnection counted);
  void on_event(const Event& event);

  // --- Called by the loop
  void on_completion_event();
  void on_memory_released() { turns_.waits_for_memory = false; }
  // Does what there is to do, at most a batch of each kind. Returns how much it was.
  std::size_t turn();
  // The same if a completion has come; costs little if not.
  std::size_t look();
  // From now on an event reports completions: looks once more. Returns how much was done.
  std::size_t arm();
  // The program goes on to another connection: posts what waits, while its memory is in the cache.
  // Returns how much was done.
  std::size_t post_burst();
  // Whether post_burst() was called since the last call of this.
  [[nodiscard]] bool take_posted() { return std::exchange(turns_.posted, false); }
  // The loop ends: ends the connection at once, and calls no handler.
  void shut_down();

  // --- Called by the application; Connection documents them
  void check_thread() const;
  [[nodiscard]] Sending send_copy(std::span<const std::byte> bytes, const SendOptions& options);
  [[nodiscard]] Sending send_buffer(const Buffer& buffer, const SendOptions& options);
  [[nodiscard]] Sending send_pieces(std::span<const LocalSlice> pieces, const SendOptions& options);
  [[nodiscard]] Buffer allocate(std::size_t bytes);
  [[nodiscard]] const verbs::ProtectionDomain& domain() const;
  [[nodiscard]] std::optional<Received> receive();
  void disconnect();
  void disconnect_after_sending();
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool writable() const;
  [[nodiscard]] std::uint64_t max_message_bytes() const;
  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] std::span<const std::byte> peer_private_data() const { return peer_.private_data; }
  [[nodiscard]] std::string local_address() const;
  [[nodiscard]] std::string peer_address() const;
  void set_handlers(Handlers handlers);
  // Resumes the coroutine as soon as `ready` returns true. It must do so after the end as well.
  void await(std::shared_ptr<Suspension> suspension, std::function<bool()> ready);
  [[nodiscard]] std::shared_ptr<Suspension> suspension(Deadline deadline, std::stop_token stop);
  // Throws the reason why there is no connection.
  [[noreturn]] void throw_error() const { end_.raise(); }
  [[nodiscard]] bool has_message() const { return session_ && session_->has_ready(); }
  [[nodiscard]] bool was_established() const { return was_established_; }
  void* user;

 private:
  struct Peer {
    std::string name;  // for error texts
    std::vector<std::byte> private_data;
  };
  struct ConnectOptions {
    std::chrono::milliseconds timeout;
    std::vector<std::byte> private_data;
  };

  // --- Connecting (link.cc)
  void create_queue_pair();
  [[nodiscard]] static verbs::ConnectionParameters parameters(
      const std::vector<std::byte>& greeting);
  void on_established(const Event& event);
  void fail_connecting(const Event& event);
  void fail_rejected(const Rejection& rejection);
  void ask();
  void call_after(std::chrono::milliseconds delay, void (Link::*work)());
  void check_connected();
  void check_alive();
  template <typename Step>
  void try_step(const Step& step);

  // --- Progress (link_io.cc)
  std::size_t turn(std::size_t polled);
  void expect_completions();
  [[nodiscard]] std::size_t poll();
  [[nodiscard]] bool poll_some(std::size_t& done);
  void complete(const verbs::Completion& completion);
  void complete_receive(const verbs::Completion& completion);
  void complete_send(std::uint32_t slot);
  void complete_read();
  void post_receive(std::uint32_t slot);
  void refill_receives();
  void post_work();
  void post_frames();
  [[nodiscard]] std::size_t take_early_completions();
  void post_reads();
  [[nodiscard]] bool begin_fetch();
  void wait_for_memory();

  // --- Sending (link_user.cc)
  // Messages are taken already, although the connection is not established.
  [[nodiscard]] bool queues_early() const {
    return state_ == State::connecting && !end_ && early_.open();
  }
  [[nodiscard]] std::size_t waiting_messages() const;
  [[nodiscard]] std::uint64_t waiting_bytes() const;
  [[nodiscard]] int send_error(std::uint64_t bytes);
  [[nodiscard]] int prepare_early(Record& record);
  void send_early();
  [[nodiscard]] Sending enqueue(std::shared_ptr<Record> record, const SendOptions& options);

  // --- Calling the application, and the end (link_end.cc)
  [[nodiscard]] Received take_message(InMessage& message);
  void settle_delivery(const InMessage& message, Received& received);
  void release_receive(const InMessage& message, BlockPointer rest);
  std::size_t deliver_messages(std::size_t max);
  std::size_t report_statuses(std::size_t max);
  // Whether the application hears of statuses, or coroutines may wait for them.
  [[nodiscard]] bool statuses_matter() const;
  void call_status_handler(Status status, const std::shared_ptr<Record>& record);
  void report_writable();
  // Begins the end; only the first call counts. finish() follows, from the loop.
  void end(Ending::By by, int error, std::string text, ErrorDetail detail = {});
  // Without a detail it has the peer.
  void fail(int error, std::string text, ErrorDetail detail = {});
  void finish();
  void release();
  void report_end();

  LoopCore* loop_;            // null once the connection has ended
  std::uint64_t number_ = 0;  // its key in the loop
  std::shared_ptr<const Handlers> handlers_;
  Limits limits_;
  ConnectOptions connect_options_;
  Peer peer_;
  State state_ = State::connecting;
  bool was_established_ = false;
  CountedConnection counted_;  // with its listener, if it was accepted

  // Destroyed from the last to the first: memory is deregistered before its device is released.
  LinkTransport transport_;
  std::optional<Session> session_;  // from the moment when both sides' terms are known
  SendSlots send_slots_;
  ReceiveSlots receive_slots_;
  MessageFetcher fetcher_;

  WaiterList waiters_;
  EarlySends early_;
  Liveness liveness_;
  Statistics statistics_;
  LinkEnd end_;
  // How the loop comes back to this connection.
  struct Turns {
    bool inside = false;            // turn() posts later what is sent meanwhile
    bool polled = false;            // the loop looks for completions, without events
    bool queued = false;            // a turn, or the end of a burst, posts messages
    bool posted = false;            // see take_posted()
    bool waits_for_memory = false;  // a turn follows when there is some
  } turns_;
  bool send_refused_ = false;  // with EAGAIN: `writable` is to be called
  bool discard_ = false;       // messages that have arrived are not delivered any more
};

// Describes an errno, with the limit if the process has run out of descriptors.
[[nodiscard]] std::string explain(int error_number);
using verbs::detail::without_cause;

}  // namespace weft::message::detail
