// Transport: the verbs objects of one stream, and how its messages are posted to the queue pair.
//
// Receives are slots of four bytes, one for each message that the peer may send. The bytes of the
// stream do not go through them: the peer writes these into the receive ring.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stream/flow_control.h"
#include "stream/greeting_wire.h"
#include "stream/reports.h"
#include "stream/request_id.h"
#include "stream/ring_memory.h"
#include "stream/shared_ring.h"
#include "weft/stream/options.hpp"
#include "weft/verbs.hpp"

namespace weft::stream::detail {

// Not thread-safe: the stream's lock covers it. The post_ functions return 0 or an errno.
class Transport {
 public:
  // The id must be bound to a device. Posts all receives. Throws Error: EINVAL if the device has
  // less than the options ask for.
  Transport(const verbs::Id& id, const Options& options);

  // The greeting for the peer, without private data.
  [[nodiscard]] StreamGreeting greeting(GreetingType type) const;
  [[nodiscard]] std::uint8_t variants() const { return variants_; }
  // Offers the memory of our ring to the peer, if it is a process of this host, and with it the
  // bell, unless that is -1. Before the queue pair connects. Returns whether there is such memory.
  bool offer_memory(int bell);
  // For SharedRingWriter::open().
  struct PeerMemory {
    Descriptor file;
    Descriptor bell;
  };
  // The peer's ring. Not valid if the peer offers none, or where it is not known yet: then
  // `pending` is true. Returns it once.
  [[nodiscard]] PeerMemory take_peer_memory(bool& pending);
  // Whether the peer has our bell, if it has our memory.
  [[nodiscard]] bool has_bell() const { return rings_; }
  // The counters of our ring; null if its memory was not offered.
  [[nodiscard]] std::byte* counters() const;
  // Sets the peer's ring and the variant that was agreed on. Returns the sizes for FlowControl.
  [[nodiscard]] FlowSizes connect(const StreamGreeting& peer, std::uint8_t variant);
  [[nodiscard]] Variant variant() const {
    return immediate_ ? Variant::immediate : Variant::write_and_send;
  }

  // Gives the pages behind the first `kept` bytes of the send ring back to the kernel. Only while
  // nothing of it is under way, and where no adapter has registered it.
  void give_back_send_pages(std::uint32_t kept) const {
    if (send_) send_->memory.give_back(kept, sizes_.send_ring, false);
  }
  // Whether there is a send ring. Where the peer may share memory it is made when a message needs
  // it: most such streams send none. make_send_memory() throws Error.
  [[nodiscard]] bool has_send_memory() const { return send_.has_value(); }
  void make_send_memory();
  [[nodiscard]] std::span<std::byte> send_ring() const {
    return send_->region.elements().first(sizes_.send_ring);
  }
  [[nodiscard]] std::span<std::byte> receive_ring() const {
    return receive_ring_.elements().first(sizes_.receive_ring);
  }
  // A row of our table, as the peer has written it.
  [[nodiscard]] std::span<const std::byte> row(std::uint32_t number) const;
  [[nodiscard]] const verbs::ProtectionDomain& domain() const { return domain_; }
  [[nodiscard]] const verbs::CompletionQueue& queue() const { return queue_; }
  [[nodiscard]] const verbs::CompletionChannel& channel() const { return channel_; }

  // Writes `bytes` to offset `to` of the peer's ring, from other memory than our send ring.
  [[nodiscard]] int post_data(const verbs::LocalSlice& bytes, std::uint32_t to);
  // Writes a piece of our send ring. `may_wait`: see Reports::add().
  [[nodiscard]] int post_piece(const Piece& piece, std::uint32_t may_wait);
  // Sends a word that takes a receive for data, and has no bytes.
  [[nodiscard]] int post_word(std::uint32_t word);
  // `reports`: as soon as it is complete, and all requests before it.
  [[nodiscard]] int post_control(std::uint32_t word, bool reports);
  // Writes a row of the peer's table. `row` has row_bytes and is copied during the call.
  [[nodiscard]] int post_row(std::uint32_t number, std::span<const std::byte> row);
  // Writes to a buffer that the peer has mapped; the peer is not notified.
  [[nodiscard]] int post_mapped_write(const Piece& piece, const verbs::RemoteSlice& to);
  // A write of zero bytes, which the peer's device answers.
  [[nodiscard]] int post_probe();
  // Whether messages were posted that do not report their completion. post_report() sends nothing
  // to the peer's program, and reports for them; it takes the place of a data message.
  [[nodiscard]] bool reports_wait() const { return reports_.any_wait(); }
  [[nodiscard]] int post_report();
  // In one call to the device, which costs less than one for each.
  static constexpr std::size_t max_receives_at_once = 32;
  [[nodiscard]] int post_receives(std::span<const std::uint32_t> slots);
  // The word of the message that was received into the slot (write_and_send only).
  [[nodiscard]] std::uint32_t word_in(std::uint32_t slot) const;

 private:
  // `reported`: as Reports::add() has returned it.
  [[nodiscard]] int post_message(const verbs::LocalSlice& bytes, const verbs::RemoteSlice& to,
                                 std::uint32_t word, const std::optional<Held>& reported);
  [[nodiscard]] int post_write(const verbs::LocalSlice& bytes, const verbs::RemoteSlice& to,
                               const Held& held);
  [[nodiscard]] std::size_t slot_at(std::uint32_t number) const;
  [[nodiscard]] verbs::LocalSlice no_bytes() const { return receive_ring_.slice(0, 0); }

  // Sizes in bytes. A ring has room for its growth.
  struct Sizes {
    std::uint32_t send_ring = 0;
    std::uint32_t send_part = 0;  // of the ring, that is used at first
    std::uint32_t receive_ring = 0;
    std::uint32_t receive_part = 0;
    std::size_t rows_at = 0;   // in the memory of the send ring
    std::size_t send = 0;      // all of that
    std::size_t slots_at = 0;  // in the memory of the receive ring
    std::size_t receive = 0;
  };
  // The ring that messages are sent from, and a copy of each row of the peer's table while it is
  // sent.
  struct SendMemory {
    RingMemory memory;
    verbs::TypedRegion<std::byte> region;
  };
  // Numbers of messages and rows.
  struct Counts {
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::uint32_t mapped_buffers = 0;
  };
  [[nodiscard]] static Sizes sizes_of(const Options& options, const verbs::Context& context);
  [[nodiscard]] std::uint8_t part_log2() const;
  // `options` have been checked, and changed for the peer.
  struct Checked {
    const Options& options;
  };
  Transport(const verbs::Id& id, const Checked& checked);

  Sizes sizes_;
  Counts counts_;
  std::uint8_t variants_;  // that this side supports: variant_ bits
  bool immediate_ = true;
  verbs::ProtectionDomain domain_;
  verbs::CompletionChannel channel_;
  verbs::CompletionQueue queue_;
  Descriptor receive_file_;  // of receive_memory_, until it is offered
  RingMemory receive_memory_;
  std::optional<SendMemory> send_;
  // The ring that the peer writes to, behind it our table of its mapped buffers, and a word for
  // each receive.
  verbs::TypedRegion<std::byte> receive_ring_;
  verbs::QueuePair queue_pair_;
  verbs::RemoteSlice peer_ring_;
  verbs::RemoteSlice peer_table_;
  Reports reports_;
  bool offered_ = false;
  bool rings_ = false;  // the peer has got our bell with the memory
};

}  // namespace weft::stream::detail
