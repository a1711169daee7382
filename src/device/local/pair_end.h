// One end of a connection that two processes make without TCP: see process_pair.h. It exists from
// the request on, and has the inboxes of both ends from the acceptance on. Its destructor leaves
// the connection, whatever has become of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/local/process_pair.h"

namespace weft::device {

// Movable. Not thread-safe, unless stated otherwise.
class PairEnd {
 public:
  PairEnd() = default;
  PairEnd(PairEnd&& other) noexcept { *this = std::move(other); }
  PairEnd& operator=(PairEnd&& other) noexcept;
  ~PairEnd() { leave(); }

  [[nodiscard]] bool valid() const { return pair_ != nullptr; }
  // Called from now on when there is something to look at: an answer, a bell, the end of the peer.
  void serve(std::weak_ptr<Pollable> target) const;
  // The other process has ended or has closed the pair, or the dialing side has given up.
  [[nodiscard]] bool is_lost() const;

  // The dialing side: the answer, once there is one. An acceptance makes this end complete. `gone`:
  // there will be none.
  [[nodiscard]] std::optional<PairReply> take_reply();

  // The serving side. `frame`: the MPA reply.
  void set_frame(Bytes frame) { frame_.assign(frame.begin(), frame.end()); }
  // Takes an inbox for the queue pair. False: there is no memory.
  [[nodiscard]] bool take_inbox(std::uint32_t receives);
  // The inbox is complete: sends the acceptance.
  void accept(Context& context, const SharedFiles& offered);
  void refuse(Bytes frame, pair_message::Answer answer = pair_message::Answer::refused);
  // The same, where what the request has named could not be mapped.
  void refuse_lacking(const pair_message::Header& request);
  // Accepts with a socket in place of the inbox, for iWARP. Not valid where there is none.
  [[nodiscard]] sys::Descriptor accept_as_stream();

  // As ProcessPair::staged().
  [[nodiscard]] bool staged() const { return pair_->staged(); }
  // Both ends are known.
  [[nodiscard]] bool is_complete() const { return own_.valid() && peer_.valid(); }
  [[nodiscard]] bool serves() const { return serves_; }
  [[nodiscard]] inbox::Inbox& own() const { return *own_.inbox(); }
  [[nodiscard]] inbox::Inbox& peer() const { return *peer_.inbox(); }
  [[nodiscard]] std::uint32_t own_receives() const { return own_.file->receives; }
  [[nodiscard]] std::uint32_t peer_receives() const { return peer_.file->receives; }
  [[nodiscard]] const std::shared_ptr<const PeerProcess>& process() const { return process_; }
  // What the peer's program shares.
  [[nodiscard]] SharedFiles take_files() { return std::move(files_); }
  // Makes the peer look, and the second one also a thread that waits for an event of the connection
  // manager. Thread-safe.
  void ring() const { pair_->ring(number_, ProcessPair::Wakes::engine); }
  void ring_waiter() const { pair_->ring(number_, ProcessPair::Wakes::waiter); }
  // In the child after fork(): leaves nothing.
  void abandon_after_fork();
  // Where this end would put its next message.
  void set_position(std::uint64_t position) { position_ = position; }

 private:
  friend class ProcessPair;
  void leave();
  void refuse_by(const pair_message::Header& reply, Bytes frame);
  // What an acceptance brings along.
  void take_parts_of(PairReply& reply);
  void end_and_leave(ProcessPair& pair);

  std::shared_ptr<ProcessPair> pair_;
  std::uint32_t number_ = 0;
  bool serves_ = false;
  bool answered_ = false;
  bool peer_has_begun_ = false;  // at the dialing side: the peer has accepted
  InboxPlace own_;
  InboxPlace peer_;
  std::shared_ptr<const PeerProcess> process_;
  SharedFiles files_;
  std::vector<std::byte> frame_;
  std::optional<std::uint64_t> position_;
};

}  // namespace weft::device
