#include "device/local/local_responder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/guarded_memory.h"
#include "device/local/staging.h"
#include "device/memory/can_access.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::Fault;
using iwarp::Operation;
using iwarp::Status;

// See LocalResponder::look_for_waiting_peer().
constexpr std::uint64_t slots_between_looks = inbox::slots / 2;

// The right that the peer needs, by the kind of access (ibv_reg_mr(3)).
iwarp::RemoteRight right_of(Operation operation) {
  if (operation == Operation::read) return iwarp::RemoteRight::read;
  return is_atomic(operation) ? iwarp::RemoteRight::atomic : iwarp::RemoteRight::write;
}

bool same(const iwarp::LocalSlice& one, const iwarp::LocalSlice& other) {
  return one.address == other.address && one.length_bytes == other.length_bytes &&
         one.lkey == other.lkey;
}

// What the receiver of a request's message learns of it: size and flags are those of the request,
// which was checked and carried out. The peer may have written others into the header.
inbox::MessageHeader notice_of(const inbox::AccessRequest& request,
                               const inbox::MessageHeader& header) {
  inbox::MessageHeader notice = header;
  notice.flags = request.flags;
  notice.length_bytes = static_cast<std::uint32_t>(request.length_bytes);
  return notice;
}

// As processor atomics, so that they exclude each other and those of programs on the same memory.
GuardedAtomic atomic_of(const inbox::AccessRequest& request) {
  switch (request.operation) {
    case Operation::fetch_add:
      return {.operation = AtomicOperation::fetch_add, .operand = request.compare_or_add};
    case Operation::compare_swap:
      return {.operation = AtomicOperation::compare_exchange,
              .operand = request.swap,
              .expected = request.compare_or_add};
    default:
      return {.operation = AtomicOperation::exchange, .operand = request.swap};
  }
}

}  // namespace

// What a peer needs to know of a receive: how much fits, and where large payload goes. The peer
// checks the lkeys again when it writes, and this end when it copies.
//
// Many programs post the same receives again and again. One that its place has already is not
// written, so that the cache line stays in the caches of both ends.
void LocalResponder::publish(std::uint64_t number) {
  const auto slices = parts_.receives.own().slices_of(number);
  inbox::Receive& receive = connection_.own_receive(number - first_);
  const std::uint64_t length_bytes = iwarp::total_bytes(slices);
  const bool kept = slices.size() == 1 && receive.pieces == 1 &&
                    receive.length_bytes == length_bytes && same(receive.first, slices.front());
  if (kept) return;
  receive.length_bytes = length_bytes;
  receive.pieces = static_cast<std::uint32_t>(slices.size());
  // A receive with more pieces is filled by this side, which the peer asks for that.
  if (slices.size() > inbox::direct_slices) {
    receive.pieces = inbox::direct_slices + 1;
  } else if (!slices.empty()) {
    receive.first = slices.front();
    if (slices.size() > 1) {
      std::ranges::copy(slices.subspan(1), connection_.own_further_slices(number - first_).begin());
    }
  }
}

void LocalResponder::publish_receives() {
  const ReceiveRing& ring = parts_.receives.own();
  if (published_ == ring.last()) return;
  for (; published_ < ring.last(); ++published_) publish(published_);
  inbox::Inbox& own = connection_.own();
  // After the receives themselves; sequentially consistent with the look at `wants_receive` behind
  // it.
  own.receives.published.store(published_ - first_, std::memory_order_seq_cst);
  if (own.wants_receive.load(std::memory_order_seq_cst) != 0 &&
      // The exchange makes one wake-up out of several posts.
      own.wants_receive.exchange(0) != 0) {
    connection_.wake();
  }
}

// A peer that writes as fast as this end reads must not keep it here for ever. An answer is taken
// behind the messages that the peer has sent before it.
bool LocalResponder::drain() {
  constexpr unsigned most = 4 * inbox::slots;
  const bool answered = requester_.is_answered();
  RingReader& reader = connection_.reader();
  unsigned taken = 0;
  const std::uint64_t began = reader.position();
  // A failure ends the connection, so later messages have no effect.
  for (; !failure_ && !halted_ && taken < most; ++taken) {
    const auto header = reader.next();
    if (!header || !take(*header)) break;
    reader.done(*header);
  }
  if (answered) requester_.take_answer();
  // The peer has written what no version of this library writes.
  if (reader.broken()) fail(inbox::End::closed);
  if (taken == 0) return true;
  slots_since_look_ += reader.position() - began;
  look_for_waiting_peer();
  return taken < most;
}

// As drain() with everything as it nearly always is, and with completions that nothing but the poll
// waits for. At most as many messages as the ring has places.
bool LocalResponder::take_promptly(DirectPoll& poll) {
  const bool usual = !failure_ && !halted_ && !starving_ && !parts_.receives.shared();
  if (!usual || !parts_.delivers_to(poll)) return false;
  RingReader& reader = connection_.reader();
  for (std::size_t left = std::min<std::size_t>(poll.room.size(), inbox::slots); left > 0; --left) {
    if (!take_next(poll)) return false;
    const bool more = !reader.is_empty();
    // The program may have another place for the next message.
    const bool stops = poll.place && poll.place->used >= 0;
    if (more && !stops) continue;
    if (stops) poll.place->more = more;
    if (slots_since_look_ >= slots_between_looks) look_for_waiting_peer();
    return true;
  }
  return false;
}

// As take_send(). What it does not allow is left to that function, which repeats the checks.
bool LocalResponder::take_next(DirectPoll& poll) {
  RingReader& reader = connection_.reader();
  inbox::MessageHeader header;
  if (!reader.look_at_send(header) || header.length_bytes == 0 ||
      (header.flags & ~(inbox::flag_solicited | inbox::flag_immediate)) != 0) {
    return false;
  }
  const ReceiveRing& receives = parts_.receives.own();
  const std::uint64_t number = receives.first();
  if (number == receives.last()) return false;
  const auto slices = receives.slices_of(number);
  if (slices.size() != 1 || header.length_bytes > slices.front().length_bytes) return false;
  const iwarp::Memory memory = parts_.memory.local_memory(slices.front(), true);
  if (memory.fault != Fault::none) return false;
  const bool elsewhere = poll.uses_place(header.length_bytes);
  if (!reader.copy(0, {elsewhere ? poll.place->at : memory.at, header.length_bytes})) return false;
  if (elsewhere) poll.place->used = poll.taken;
  parts_.deliver_oldest(
      poll, header.length_bytes,
      (header.flags & inbox::flag_immediate) != 0 ? &header.immediate_be : nullptr);
  reader.done(header);
  slots_since_look_ += header.slots;
  return true;
}

// A peer that waits for room has filled nearly all slots since the last look here, so there are
// many left to be taken, and another look will come. One that waits until messages to a shared
// queue, or those of a staged connection, are taken may wait for the last of them.
void LocalResponder::look_for_waiting_peer() {
  static_assert(slots_between_looks + RingWriter::slots_for(inbox::matched_inline_bytes) <
                inbox::slots);
  const bool any = parts_.receives.shared() || connection_.staged();
  if (!any && slots_since_look_ < slots_between_looks) return;
  slots_since_look_ = 0;
  // Not a load: that could be carried out before the store of what was consumed is visible, and the
  // peer would wait for ever.
  if (connection_.own().wants_room.exchange(0) != 0) connection_.wake();
}

bool LocalResponder::take(const inbox::MessageHeader& header) {
  // Every message counts as an arrival, as over TCP.
  if (!starving_) parts_.note_arrival();
  switch (header.kind) {
    case inbox::Kind::request:
      return take_request(header);
    default:
      return take_send(header);
  }
}

// Receives of a shared queue are not published, so the peer sends without one. Its message waits
// then, and the inbox shows that. Otherwise the peer only sends for a receive that was published.
bool LocalResponder::find_receive() {
  // Nothing comes between the parts of a Send.
  if (held_ != 0) return broken();
  std::atomic<std::uint64_t>& starving = connection_.own().receives.starving;
  std::uint64_t waiting = connection_.reader().position() + 1;
  const bool shared = parts_.receives.shared() != nullptr;
  if (parts_.receives.take(receive_, shared)) {
    if (!std::exchange(starving_, false) || starving.compare_exchange_strong(waiting, 0)) {
      return true;
    }
    // The peer has given up at the same time, and its Send has failed. The receive is lost with the
    // connection.
    parts_.complete_receive({.wr_id = receive_.wr_id, .status = Status::flushed});
    fail(inbox::End::terminated);
  } else if (!shared) {
    fail(inbox::End::closed);
  } else if (!std::exchange(starving_, true)) {
    starving.store(waiting, std::memory_order_release);
    connection_.wake();
  }
  return false;
}

// A Send or a Write with immediate: the peer uses receives in the order in which they are
// published.
bool LocalResponder::take_send(const inbox::MessageHeader& header) {
  // A Send that invalidates is a request, so that this device has carried it out when the program
  // learns of it.
  if ((header.flags & inbox::flag_invalidate) != 0) return broken();
  if (!find_receive()) return false;
  const bool from_write = header.kind == inbox::Kind::written;
  Status status = Status::success;
  if (header.kind == inbox::Kind::send) status = place(receive_, header);
  if (header.kind == inbox::Kind::placed &&
      header.length_bytes > iwarp::total_bytes(receive_.slices)) {
    status = Status::local_length;  // only a broken peer places more than there is room for
  }
  complete(receive_.wr_id, status, header, from_write);
  if (status == Status::success) return true;
  fail(inbox::End::terminated);
  // The peer has checked the length against what was published, but for a shared queue.
  if (parts_.receives.shared()) {
    const bool length = status == Status::local_length;
    answer({.status = length ? Status::remote_invalid_request : Status::remote_operation});
  }
  return false;
}

Status LocalResponder::place(const iwarp::ReceiveRequest& receive,
                             const inbox::MessageHeader& header) {
  const bool fits = (header.flags & inbox::flag_too_long) == 0 &&
                    header.length_bytes <= iwarp::total_bytes(receive.slices);
  if (!fits) return Status::local_length;
  if (receive.slices.size() == 1 && header.length_bytes > 0) [[likely]] {
    const iwarp::Memory memory = parts_.memory.local_memory(receive.slices.front(), true);
    const bool placed = memory.fault == Fault::none &&
                        connection_.reader().copy(0, {memory.at, header.length_bytes});
    return placed ? Status::success : Status::local_protection;
  }
  here_.clear();
  if (iwarp::map_slices(parts_.memory, receive.slices, 0, header.length_bytes, true, here_) !=
      Fault::none) {
    return Status::local_protection;
  }
  std::size_t offset = 0;
  for (const iovec& piece : here_) {
    auto* const at = static_cast<std::byte*>(piece.iov_base);
    if (!connection_.reader().copy(offset, {at, piece.iov_len})) return Status::local_protection;
    offset += piece.iov_len;
  }
  return Status::success;
}

void LocalResponder::complete(std::uint64_t wr_id, Status status,
                              const inbox::MessageHeader& header, bool from_write) {
  if (status != Status::success) {
    return parts_.complete_receive({.wr_id = wr_id, .status = status});
  }
  parts_.complete_receive({.wr_id = wr_id,
                           .status = status,
                           .length_bytes = header.length_bytes,
                           .solicited = (header.flags & inbox::flag_solicited) != 0,
                           .from_write = from_write,
                           .has_immediate = (header.flags & inbox::flag_immediate) != 0,
                           .immediate_be = header.immediate_be,
                           .has_invalidated = (header.flags & inbox::flag_invalidate) != 0,
                           .invalidated_rkey = header.rkey});
}

// --- Accesses that the peer asks for -------------------------------------------------------------

bool LocalResponder::take_request(const inbox::MessageHeader& header) {
  inbox::AccessRequest request;
  // All sizes come from the peer's memory and are checked against the slots that the message
  // occupies.
  const std::size_t bytes = header.slots * inbox::Slot::bytes - sizeof header;
  if (bytes < sizeof request) return broken();
  (void)connection_.reader().copy(0, std::as_writable_bytes(std::span(&request, 1)));
  std::array<inbox::Piece, inbox::AccessRequest::most_pieces> pieces;
  const std::size_t piece_bytes = request.pieces * sizeof(inbox::Piece);
  if (request.pieces > pieces.size() || bytes < sizeof request + piece_bytes ||
      request.operation > Operation::atomic_write ||
      ((request.flags & inbox::flag_invalidate) != 0 &&
       request.operation != Operation::send_invalidate) ||
      !has_payload(request, bytes)) {
    return broken();
  }
  (void)connection_.reader().copy(sizeof request,
                                  std::as_writable_bytes(std::span(pieces)).first(piece_bytes));
  there_.clear();
  for (std::size_t i = 0; i < request.pieces; ++i) {
    there_.push_back({reinterpret_cast<void*>(pieces[i].address),
                      static_cast<std::size_t>(pieces[i].length_bytes)});
  }
  const auto reply = carry_out(request, header);
  if (!reply) return false;
  const bool unanswered = (request.flags & inbox::flag_unanswered) != 0;
  if (unanswered && reply->status == Status::success) return true;
  // That it is not taken shows which one has failed, and the peer ends the connection.
  halted_ = unanswered;
  answer(*reply);
  return !unanswered;
}

// In a staged connection the payload is where the request says. `bytes`: of the message.
bool LocalResponder::has_payload(const inbox::AccessRequest& request, std::size_t bytes) const {
  if (!connection_.staged()) return true;
  if ((request.flags & inbox::flag_in_ring) == 0) {
    return staging::is_possible(request.part, request.length_bytes);
  }
  return !iwarp::is_answered(request.operation) && bytes - sizeof request >= request.length_bytes;
}

bool LocalResponder::broken() {
  fail(inbox::End::closed);
  return false;
}

// The peer has no other request under way, so the place is free.
void LocalResponder::answer(const inbox::AccessReply& reply) {
  inbox::Answer& answer = connection_.peer().answer;
  answer.reply = reply;
  answer.count.store(answer.count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  connection_.wake();
}

std::optional<inbox::AccessReply> LocalResponder::carry_out(const inbox::AccessRequest& request,
                                                            const inbox::MessageHeader& header) {
  // The requester has deregistered the memory: it is its own request that fails. What is in the
  // ring needs that memory no more.
  const bool in_ring = connection_.staged() && (request.flags & inbox::flag_in_ring) != 0;
  if (!in_ring && (!connection_.peer_is_open() || withdrawn(request))) {
    return inbox::AccessReply{.status = Status::local_protection};
  }
  if (request.operation == Operation::write_immediate) return write_and_notify(request, header);
  if (!takes_receive(request.operation)) return transfer(request);
  const bool held = held_ != 0 && held_ == request.number;
  if (held || find_receive()) return pull_send(request, header);
  if (starving_) return std::nullopt;
  return refuse(Status::remote_invalid_request);
}

// The payload is placed once, also where its receive comes later.
std::optional<inbox::AccessReply> LocalResponder::write_and_notify(
    const inbox::AccessRequest& request, const inbox::MessageHeader& header) {
  if (placed_ != request.number) {
    const inbox::AccessReply reply = transfer(request);
    if (reply.status != Status::success || !is_last(request)) return reply;
    placed_ = request.number;
  }
  if (!find_receive()) {
    if (starving_) return std::nullopt;
    return refuse(Status::remote_invalid_request);
  }
  complete(receive_.wr_id, Status::success, notice_of(request, header), true);
  return inbox::AccessReply{};
}

// The peer has deregistered memory since it asked.
bool LocalResponder::withdrawn(const inbox::AccessRequest& request) const {
  const inbox::Inbox& peer = connection_.peer();
  return peer.withdrawn.load(std::memory_order_seq_cst) >= request.number &&
         peer.withdrawn_from.load(std::memory_order_seq_cst) <= request.number;
}

bool LocalResponder::is_last(const inbox::AccessRequest& request) const {
  return !connection_.staged() || (request.flags & inbox::flag_in_ring) != 0 ||
         staging::is_last(request.part, request.length_bytes);
}

// The payload behind a request in the ring. A program that watches the last byte of a Write finds
// all others when that arrives.
bool LocalResponder::scatter_from_ring() const {
  std::size_t offset = sizeof(inbox::AccessRequest);
  for (const iovec& piece : here_) {
    auto* const at = static_cast<std::byte*>(piece.iov_base);
    const std::size_t head = staging::bytes_before_last_line(at, piece.iov_len);
    const RingReader& reader = connection_.reader();
    if (!reader.copy(offset, {at, head})) return false;
    if (!reader.copy(offset + head, {at + head, piece.iov_len - head})) return false;
    offset += piece.iov_len;
  }
  return true;
}

// Copies between here_ and there_, or in a staged connection between here_ and the staging area.
int LocalResponder::copy(RemoteCopy::Purpose purpose, const inbox::AccessRequest& request) {
  if (connection_.staged()) {
    if ((request.flags & inbox::flag_in_ring) != 0) return scatter_from_ring() ? 0 : EFAULT;
    const auto area = connection_.own_staging();
    const bool done = purpose == RemoteCopy::Purpose::send
                          ? staging::gather(here_, request.part, area)
                          : staging::scatter(here_, request.part, area);
    return done ? 0 : EFAULT;
  }
  return connection_.remote().run(purpose, here_, there_, [&] { return !withdrawn(request); });
}

inbox::AccessReply LocalResponder::refuse(Status status) {
  if (status == Status::remote_access) {
    fail(inbox::End::terminated, IBV_EVENT_QP_ACCESS_ERR);
  } else {
    fail(inbox::End::terminated);
  }
  return {.status = status};
}

// The kernel does not report whose memory cannot be accessed. If the memory here can be, the fault
// is the peer's own. In a staged connection this end accesses no other.
inbox::AccessReply LocalResponder::copy_failed(RemoteCopy::Purpose purpose) {
  if (connection_.staged()) return refuse(Status::remote_operation);
  const bool writes_here = purpose != RemoteCopy::Purpose::send;
  const bool ours = std::any_of(here_.begin(), here_.end(), [&](const iovec& piece) {
    return !can_access(piece, writes_here);
  });
  return ours ? refuse(Status::remote_operation)
              : inbox::AccessReply{.status = Status::local_protection};
}

inbox::AccessReply LocalResponder::transfer(const inbox::AccessRequest& request) {
  // The STag of no bytes is not checked (RFC 5040 §5.2.1).
  if (request.length_bytes == 0 && !is_atomic(request.operation)) return {};
  const iwarp::RemoteRight right = right_of(request.operation);
  const std::uint64_t length_bytes = is_atomic(request.operation) ? 8 : request.length_bytes;
  RemoteAccess access{
      .stag = request.stag, .offset = request.offset, .length_bytes = length_bytes, .right = right};
  iwarp::Memory memory = parts_.memory.remote_memory(access);
  // An atomic write does not learn the old value, so the right to write is enough.
  if (memory.fault == Fault::access && request.operation == Operation::atomic_write) {
    access.right = iwarp::RemoteRight::write;
    memory = parts_.memory.remote_memory(access);
  }
  if (memory.fault != Fault::none) {
    parts_.refused = {request.stag, request.offset, length_bytes, right};
    return refuse(Status::remote_access);
  }
  inbox::AccessReply reply;
  QueuePairCounters& counters = parts_.completions.counters();
  Traffic* traffic = &counters.peer_atomics;
  // One piece: a region is contiguous.
  here_.assign(1, {memory.at, static_cast<std::size_t>(length_bytes)});
  if (is_atomic(request.operation)) {
    // RFC 7306 §5.1: memory that is not aligned stays unchanged.
    if (reinterpret_cast<std::uintptr_t>(memory.at) % 8 != 0) {
      return refuse(Status::remote_operation);
    }
    inbox::AccessRequest atomic = request;
    if (request.operation == Operation::atomic_write) {
      // The operand of an atomic write is in the requester's memory, so it is fetched first.
      here_.assign(1, {&atomic.swap, sizeof atomic.swap});
      constexpr auto purpose = RemoteCopy::Purpose::read;
      if (copy(purpose, request) != 0) return copy_failed(purpose);
    }
    if (!guarded_atomic(memory.at, atomic_of(atomic), reply.original)) {
      return refuse(Status::remote_access);
    }
  } else {
    const bool reads = right == iwarp::RemoteRight::read;
    // The peer's program does not watch what it reads.
    const auto purpose = reads ? RemoteCopy::Purpose::send : RemoteCopy::Purpose::fetch;
    if (copy(purpose, request) != 0) return copy_failed(purpose);
    if (!is_last(request)) return reply;
    traffic = reads ? &counters.peer_reads : &counters.peer_writes;
  }
  ++traffic->operations;
  traffic->bytes += length_bytes;
  parts_.memory.count({.stag = request.stag, .right = right, .bytes = length_bytes});
  return reply;
}

// A Send whose payload the peer cannot write into the receive itself, or that invalidates an STag.
inbox::AccessReply LocalResponder::pull_send(const inbox::AccessRequest& request,
                                             const inbox::MessageHeader& header) {
  here_.clear();
  inbox::AccessReply reply;
  Status status = Status::success;
  if (request.length_bytes > iwarp::total_bytes(receive_.slices)) {
    status = Status::local_length;
    reply = refuse(Status::remote_invalid_request);
  } else if (iwarp::map_slices(parts_.memory, receive_.slices, 0, request.length_bytes, true,
                               here_) != Fault::none) {
    status = Status::local_protection;
    reply = refuse(Status::remote_operation);
  } else if (copy(RemoteCopy::Purpose::read, request) != 0) {
    reply = copy_failed(RemoteCopy::Purpose::read);
    status = failure_ ? Status::local_protection : Status::flushed;
  } else if (!is_last(request)) {
    held_ = request.number;
    return reply;
  } else if ((request.flags & inbox::flag_invalidate) != 0 &&
             !parts_.memory.invalidate(header.rkey)) {
    status = Status::local_operation;
    reply = refuse(Status::remote_access);
  }
  held_ = 0;
  complete(receive_.wr_id, status, notice_of(request, header), false);
  return reply;
}

void LocalResponder::flush() {
  if (std::exchange(held_, 0) == 0) return;
  parts_.complete_receive({.wr_id = receive_.wr_id, .status = Status::flushed});
}

}  // namespace weft::device
