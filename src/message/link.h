// A connection: its queue pair and memory, driving a session.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "message/loop_core.h"
#include "message/pool.h"
#include "message/session.h"
#include "weft/message/connection.hpp"

namespace weft::message::detail {

// A message on its way out, with what keeps its memory.
struct Record : OutMessage {
  std::weak_ptr<Link> link;
  struct Piece {
    std::byte* at;
    std::uint64_t bytes;
    std::uint32_t lkey;
  };
  std::vector<Piece> pieces;
  BlockPointer block;                        // where the pieces are ours
  std::vector<verbs::MemoryRegion> granted;  // to the peer, while it is offered
};

// Lives until it has ended and nobody has a handle. Everything but `status` and `error` of records
// belongs to the loop's thread.
class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Event {
    rdma_cm_event_type type;
    int status;
    std::string name;
    std::vector<std::byte> private_data;
  };

  Link(LoopCore& loop, Handlers handlers, const Options& options);

  // --- Connecting
  void start(const Address& peer);
  void accept(verbs::Id id, MessageGreeting greeting, Ticket ticket);
  void on_event(const Event& event);

  // --- The loop
  void on_completion_event();
  void on_memory() { waits_for_memory_ = false; }
  // Does what there is, at most a batch. Returns how much it was.
  std::size_t turn();
  // The loop ends: without callbacks.
  void cut();

  // --- The user
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
  [[nodiscard]] std::span<const std::byte> peer_private_data() const { return peer_said_; }
  [[nodiscard]] std::string local_address() const;
  [[nodiscard]] std::string peer_address() const;
  void set_handlers(Handlers handlers);
  // Resumes the coroutine as soon as that is so, or the connection has ended.
  void await(std::shared_ptr<Suspension> suspension, std::function<bool()> ready);
  [[nodiscard]] std::shared_ptr<Suspension> suspension(Deadline deadline, std::stop_token stop);
  // Why there is no connection. Throws it.
  [[noreturn]] void throw_error() const;
  [[nodiscard]] bool has_message() const { return session_ && session_->has_ready(); }
  [[nodiscard]] bool was_established() const { return was_established_; }
  void* user;

 private:
  struct Fetch {
    InMessage* message;
    BlockPointer block;
    std::size_t piece = 0;     // what is asked for next
    std::uint64_t offset = 0;  // in the piece
    std::uint64_t asked = 0;   // bytes
    std::uint32_t reads = 0;   // under way
  };
  enum class Work : std::uint64_t { send = 1, receive = 2, read = 3 };
  static std::uint64_t work_id(Work work, std::uint32_t slot) {
    return static_cast<std::uint64_t>(work) << 32 | slot;
  }

  // --- Connecting (link.cc)
  void set_up();
  [[nodiscard]] verbs::ConnectionParameters parameters(const std::vector<std::byte>& said) const;
  void on_established(const Event& event);
  void fail_connecting(const Event& event);
  void later(std::chrono::milliseconds delay, void (Link::*work)());
  void check_connected();
  void check_alive();
  template <typename Step>
  void attempt(const Step& step);

  // --- Moving (link_io.cc)
  [[nodiscard]] std::size_t poll();
  void complete(const verbs::Completion& completion);
  void complete_receive(const verbs::Completion& completion);
  void complete_send(std::uint32_t slot);
  void complete_read();
  void post_receive(std::uint32_t slot);
  void refill();
  void pump();
  void post_frames();
  using Slices = std::array<LocalSlice, 1 + max_pieces>;
  [[nodiscard]] std::span<const LocalSlice> prepare(Emission& emission, std::uint32_t slot,
                                                    Slices& slices);
  // What is under way from one of the header slots.
  struct Posted {
    std::size_t messages = 0;  // that were not offered
    BlockPointer joined;       // where they were copied to
  };
  [[nodiscard]] LocalSlice join(const Emission& emission, Posted& posted);
  void grant(Record& record, Frame& frame);
  void post_reads();
  [[nodiscard]] bool open_fetch();
  void broken(int error, std::string what);

  // --- Sending (link_user.cc)
  [[nodiscard]] int why_not(std::uint64_t bytes);
  [[nodiscard]] Sending take(std::shared_ptr<Record> record, const SendOptions& options);

  // --- Telling (link_end.cc)
  [[nodiscard]] Received take_message(InMessage& message);
  void settle(const InMessage& message, Received& received);
  void free_receive(const InMessage& message, Buffer rest);
  std::size_t hand_over(std::size_t most);
  std::size_t tell_changes(std::size_t most);
  void tell_writable();
  void wake_waiters();
  // Once: the end is dealt with in the loop, soon.
  void end(Ending::By by, int error, std::string what);
  void finish();
  void release();
  void tell_end();

  LoopCore* loop_;  // null once the connection has ended
  std::uint64_t number_ = 0;
  std::shared_ptr<const Handlers> handlers_;
  std::chrono::milliseconds keepalive_;
  std::chrono::milliseconds connect_timeout_;
  std::vector<std::byte> said_;
  std::vector<std::byte> peer_said_;
  Limits limits_;
  State state_ = State::connecting;
  bool passive_ = false;
  bool was_established_ = false;
  std::string peer_text_;  // for errors
  Ticket ticket_;

  // In the order in which they are made; destroyed the other way round.
  std::shared_ptr<Device> device_;
  std::optional<verbs::Id> id_;
  std::optional<verbs::CompletionQueue> queue_;
  std::optional<verbs::QueuePair> queue_pair_;
  bool armed_ = false;

  std::optional<Session> session_;
  std::unique_ptr<std::byte[]> header_memory_;
  std::optional<verbs::TypedRegion<std::byte>> headers_;  // of the frames under way
  std::vector<std::uint32_t> free_headers_;
  std::vector<Posted> under_way_;              // by header
  std::optional<std::uint32_t> closing_slot_;  // whose completion is the end
  std::vector<BlockPointer> receives_;         // by slot; empty: kept by the user, or being read
  std::vector<bool> kept_;                     // by slot: a message before the last one
  std::vector<std::uint32_t> missing_;         // slots that wait for a block
  std::deque<Fetch> fetches_;
  std::deque<BlockPointer> fetched_;  // of the offers in the inbox that are ready, in order
  InMessage* to_fetch_ = nullptr;     // the next one
  std::uint32_t reads_under_way_ = 0;
  bool waits_for_memory_ = false;
  bool in_turn_ = false;  // what is sent meanwhile goes at its end
  bool refused_ = false;  // a send, with EAGAIN
  bool discard_ = false;  // nobody wants what has come
  struct Waiter {
    std::shared_ptr<Suspension> suspension;
    std::function<bool()> ready;
  };
  std::vector<Waiter> waiters_;
  TimePoint heard_{};
  bool asked_ = false;
  Statistics counted_;

  struct End {
    Ending ending;
    std::string what;
  };
  std::optional<End> end_;
  std::optional<Rejected> rejected_;
  bool told_error_ = false;
};

// Of why something could not be done, with the limit where descriptors have run out.
[[nodiscard]] std::string explain(int error_number);

}  // namespace weft::message::detail
