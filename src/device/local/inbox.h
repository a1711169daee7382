// What one end of a connection within a host receives through: memory that it owns and that its
// peer maps as well. Each end has an inbox; messages, published receives and flags go through them.
//
// Layouts, not classes with rules: the rules are in ring.h (messages), remote_copy.h (copies) and
// local_carrier.h. A peer may write anything at any time, so every value that comes from it is
// copied once, and checked before it is used as an index or a size. It runs under the same user,
// which could trace this process anyway.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/local/access_totals.h"
#include "iwarp/types.h"

namespace weft::device::inbox {

inline constexpr std::uint32_t slots = 512;
inline constexpr std::size_t line_bytes = 64;  // of a cache
// Of one receive; one that has more cannot be written to directly.
inline constexpr std::uint32_t direct_slices = 4;
// Places for published receives in the first page of an inbox. Where there are more, all of them
// lie behind the ring.
inline constexpr std::uint32_t near_receives = 64;
// Payload that is copied through the ring. A larger one is written to its place in one copy.
inline constexpr std::uint32_t inline_bytes = 4096;
// The same where the owner matches messages with receives itself (Receives::matched): its device
// would have to fetch a larger one.
inline constexpr std::uint32_t matched_inline_bytes = 12 * 1024;

enum class Kind : std::uint8_t {
  send,     // payload follows in the slots
  placed,   // of a Send whose payload lies in its receive already
  written,  // Write with immediate
  request,  // an access that the owner's device is to make
  skip,     // no message: the next one is behind these slots (RingWriter::begin_again())
};

// The area of a staged connection (staging.h) behind all else. Its pages are made at the first use.
inline constexpr std::uint32_t staging_bytes = 256 * 1024;

// Flags of a message.
inline constexpr std::uint8_t flag_solicited = 1;
inline constexpr std::uint8_t flag_immediate = 2;
inline constexpr std::uint8_t flag_invalidate = 4;
inline constexpr std::uint8_t flag_too_long = 8;  // for its receive; without payload
// Of a request: its success needs no answer, since the initiator sees that it is taken.
inline constexpr std::uint8_t flag_unanswered = 16;
// Of a request in a staged connection: all of its payload follows it in the slots.
inline constexpr std::uint8_t flag_in_ring = 32;

struct MessageHeader {
  Kind kind = Kind::send;
  std::uint8_t flags = 0;
  std::uint16_t slots = 1;  // of the whole message
  std::uint32_t length_bytes = 0;
  std::uint32_t immediate_be = 0;
  std::uint32_t rkey = 0;  // to be invalidated
};

// A slot belongs to the message that its stamp names: the number of the slot since the beginning,
// from 1. The stamp is written last.
struct alignas(64) Slot {
  static constexpr std::size_t bytes = 120;
  std::atomic<std::uint64_t> stamp{0};
  std::array<std::byte, bytes> data;
};
static_assert(sizeof(Slot) == 128);
inline constexpr std::size_t first_payload_bytes = Slot::bytes - sizeof(MessageHeader);

// Of a request in a staged connection.
struct Part {
  std::uint64_t offset = 0;  // in the request's bytes
  std::uint32_t bytes = 0;
  std::uint32_t at = 0;  // of its payload in the staging area
};
// An access that only the owner's device can make: atomics, memory windows, special regions, Sends
// to receives of many pieces. It is followed by `pieces` pairs of address and length, in the
// initiator's address space, whose local rights the initiator has checked.
// In a staged connection it may be any access, has no pieces, and may come in parts.
struct AccessRequest {
  static constexpr std::size_t most_pieces = 64;
  std::uint64_t number = 0;  // from 1: see Inbox::withdrawn
  iwarp::Operation operation = iwarp::Operation::write;
  std::uint8_t flags = 0;
  std::uint16_t pieces = 0;
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  Part part{};
};
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t length_bytes = 0;
};
struct AccessReply {
  iwarp::Status status = iwarp::Status::success;  // the one that the initiator completes with
  std::uint64_t original = 0;                     // atomics
};
// Where the peer answers the owner's request. One place is enough, because an initiator has one
// request under way. It is not in the ring, where messages may wait for receives of the owner's
// program, which may wait for the answer.
struct Answer {
  std::atomic<std::uint64_t> count{0};  // of answers so far; written last
  AccessReply reply;
};

// A posted receive, as the owner publishes it. Nearly all have one piece.
struct Receive {
  std::uint64_t length_bytes = 0;
  std::uint32_t pieces = 0;  // direct_slices + 1: the payload cannot be written directly
  std::uint32_t reserved = 0;
  iwarp::LocalSlice first{};
};
static_assert(sizeof(Receive) == 32);
// The pieces behind the first one.
using FurtherSlices = std::array<iwarp::LocalSlice, direct_slices - 1>;

// What the peer learns of the owner's receives.
struct Receives {
  std::atomic<std::uint64_t> published{0};  // since the beginning
  // Not 0: they are in a shared queue, so they are not published, and the owner finds one for each
  // message when it takes that from the ring.
  std::uint32_t matched = 0;
  // Then the position of a message that has found no receive yet, plus one; 0 where none waits.
  // The owner that finds a receive for it writes 0, and a peer that has no retries left writes
  // `given_up`, each only in the place of that position: so either the message has arrived, or the
  // Send has failed.
  std::atomic<std::uint64_t> starving{0};
  static constexpr std::uint64_t given_up = UINT64_MAX;
};

// How the peer has ended the connection.
enum class End : std::uint32_t {
  none,
  closed,
  access_refused,  // the owner's memory, to a request of the peer; an event of the owner reports it
  request_refused,  // by the owner for another reason, which a completion may report
  terminated,       // by the peer, because of a request of the owner
};

// The copy that the peer makes between its memory and the owner's: see remote_copy.h.
struct Copy {
  static constexpr std::size_t most_pieces = 64;
  // A list of no more than these lies in the first page of the inbox.
  static constexpr std::size_t few_pieces = 8;
  std::atomic<std::uint64_t> sequence{0};  // odd while a copy is announced
  std::atomic<std::uint32_t> thread{0};    // the number of the thread that makes it
  // Counts for the owner's threads how often they have begun to empty the list (begins_revocation),
  // and have done so (ends_revocation).
  std::atomic<std::uint64_t> revocations{0};
  // The owner's memory. The kernel reads this list, or the longer one, when the copy begins.
  std::array<iovec, few_pieces> pieces{};
};
inline constexpr std::uint64_t begins_revocation = std::uint64_t{1} << 32;
inline constexpr std::uint64_t ends_revocation = 1;
using CopyPieces = std::array<iovec, Copy::most_pieces>;

// When the owner wants to be woken by a message.
enum class Armed : std::uint32_t { no, any, solicited };

// The access that is refused where the connection ends with access_refused. For reports only.
struct Refused {
  std::atomic<std::uint32_t> stag{0};
  std::atomic<iwarp::RemoteRight> right{iwarp::RemoteRight::write};
  std::atomic<std::uint64_t> offset{0};
  std::atomic<std::uint64_t> length_bytes{0};
};

// How its Sends have waited for receives of the owner, by the peer's count.
struct ReceiveWaits {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> over_ns{0};   // of waits that are over
  std::atomic<std::uint64_t> began_ns{0};  // of the one that lasts, as sys::now_ns(), or 0
};

// Written by the peer when it leaves the connection: from then on it accesses the inbox no more.
struct Leaving {
  std::atomic<std::uint64_t> position{0};  // where its next message would lie
  std::atomic<std::uint32_t> done{0};      // not 0: it has left; written last
};

struct Inbox {
  // Written by the owner with every message and every receive. The peer looks here only where it
  // knows of no free slots or receives any more, so that the line stays in the owner's cache.
  alignas(64) std::atomic<std::uint64_t> consumed{0};  // slots
  Receives receives;

  // Written by the owner, rarely: the peer looks at this line with every message.
  alignas(64) std::atomic<Armed> armed{Armed::no};
  std::atomic<std::uint32_t> open{0};  // not 0: the peer may access memory, see Inbox::closing
  static constexpr std::uint32_t closing = 2;  // for the owner's requests only: it takes no others
  std::uint32_t domain = 0;
  std::uint32_t queue_pair = 0;
  std::atomic<std::uint32_t> access{0};  // IBV_ACCESS_* of the queue pair
  // The size of a Send that may wait for a receive; 0: none may. A larger one waits as well, but
  // is counted as waiting for room (QueuePairCounters::credit_waits).
  std::atomic<std::uint32_t> hold_bytes{0};
  std::atomic<std::uint64_t> retry_timer_ns{0};
  // How often such a Send is retried where its own end has not set a number.
  std::atomic<std::uint8_t> retries{0};
  // The owner's requests for an access, from this number up to the other one, may not use its
  // memory any more. The first is written before the second.
  std::atomic<std::uint64_t> withdrawn_from{0};
  std::atomic<std::uint64_t> withdrawn{0};
  // The position in the ring at which this connection begins: an inbox serves several connections,
  // one after the other, and the stamps of an earlier one must not be taken for new.
  std::uint64_t first_slot = 0;

  // Written by the peer, rarely: the owner looks at this line with every poll.
  alignas(64) std::atomic<End> end{End::none};
  std::atomic<std::uint32_t> wants_receive{0};  // not 0: it waits for a receive
  // Not 0: it waits until messages are taken, for slots or to complete Sends to matched receives.
  std::atomic<std::uint32_t> wants_room{0};
  ReceiveWaits rnr;
  Refused refused;
  Leaving leaving;
  Answer answer;

  // Written by the peer with every access. With all above and the receives below in one page: a
  // small Write touches no other one, which counts where there are thousands of connections.
  alignas(64) Copy copy;
  AccessTotals accesses;

  // Written by the owner: the published receives, where it has places for no more than these.
  alignas(64) std::array<Receive, near_receives> near;

  alignas(128) std::array<Slot, slots> ring;
  CopyPieces copy_pieces;  // of copies with more than Copy::few_pieces
  // Followed by FurtherSlices for each place for a receive, by the published receives where there
  // are more places than in `near`, and by the staging area. The number of places is a power of
  // two.
};
static_assert(offsetof(Inbox, ring) <= 4096);
static_assert(std::atomic<Armed>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

// Where the parts lie whose size depends on the number of places for receives, and the size of all.
[[nodiscard]] constexpr std::size_t receives_at(std::uint32_t receives) {
  return receives <= near_receives ? offsetof(Inbox, near)
                                   : sizeof(Inbox) + receives * sizeof(FurtherSlices);
}
[[nodiscard]] constexpr std::size_t staging_at(std::uint32_t receives) {
  constexpr std::size_t page = 4096;
  const std::size_t before = sizeof(Inbox) + receives * sizeof(FurtherSlices) +
                             (receives <= near_receives ? 0 : receives * sizeof(Receive));
  return (before + page - 1) / page * page;
}
[[nodiscard]] constexpr std::size_t bytes_for(std::uint32_t receives) {
  return staging_at(receives) + staging_bytes;
}

}  // namespace weft::device::inbox
