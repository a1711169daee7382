#include "device/local/local_connection.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace weft::device {
namespace {

inbox::Receive* published_in(inbox::Inbox* inbox, std::uint32_t receives) {
  auto* const at = reinterpret_cast<std::byte*>(inbox) + inbox::receives_at(receives);
  return std::launder(reinterpret_cast<inbox::Receive*>(at));
}

inbox::FurtherSlices* further_slices_of(inbox::Inbox* inbox) {
  return std::launder(reinterpret_cast<inbox::FurtherSlices*>(inbox + 1));
}

std::span<std::byte> staging_of(inbox::Inbox* inbox, std::uint32_t receives) {
  auto* const at = reinterpret_cast<std::byte*>(inbox) + inbox::staging_at(receives);
  return {at, inbox::staging_bytes};
}

}  // namespace

LocalConnection::LocalConnection(QueuePairParts& parts, std::unique_ptr<LocalWire> wire, Peer peer)
    : wire_(std::move(wire)),
      peer_(std::move(peer)),
      own_at_(&wire_->own()),
      peer_at_(&wire_->peer()),
      own_receives_(receives_of(parts)),
      own_published_(published_in(own_at_, own_receives_)),
      peer_published_(published_in(peer_at_, peer_.receives)),
      writer_(*peer_at_),
      reader_(*own_at_),
      remote_(*peer_at_, *peer_.process) {}

// A power of two, for the mask of own_receive().
std::uint32_t LocalConnection::receives_of(const QueuePairParts& parts) {
  return std::bit_ceil(std::max(parts.attributes.cap.max_recv_wr, 1U));
}

SharedMemory LocalConnection::make_inbox(const QueuePairParts& parts, std::uint32_t receives) {
  SharedMemory made = SharedMemory::create("weft-inbox", inbox::bytes_for(receives));
  if (!made.valid()) return made;
  // Not constructed: new memory is zero, which is the initial value of each field. The pages of the
  // ring are then made when a message first uses them, and most connections use few.
  prepare(parts, *std::launder(reinterpret_cast<inbox::Inbox*>(made.data())));
  return made;
}

void LocalConnection::prepare(const QueuePairParts& parts, inbox::Inbox& own) {
  own.domain = ProtectionDomain::of(parts.qp.pd)->number;
  own.queue_pair = parts.qp.qp_num;
  own.access = parts.attributes.qp_access_flags;
  own.receives.matched = parts.receives.shared() ? 1 : 0;
}

inbox::Receive& LocalConnection::own_receive(std::uint64_t number) const {
  return own_published_[number & (own_receives_ - 1)];
}

inbox::FurtherSlices& LocalConnection::own_further_slices(std::uint64_t number) const {
  return further_slices_of(own_at_)[number & (own_receives_ - 1)];
}

std::span<std::byte> LocalConnection::own_staging() const {
  return staging_of(own_at_, own_receives_);
}

std::span<std::byte> LocalConnection::peer_staging() const {
  return staging_of(peer_at_, peer_.receives);
}

// A copy, which the compiler must not take for the original: that may change at any time.
inbox::Receive LocalConnection::peer_receive(std::uint64_t number) const {
  const inbox::Receive copy = peer_published_[number & (peer_.receives - 1)];
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return copy;
}

iwarp::LocalSlice LocalConnection::peer_slice(std::uint64_t number, std::uint32_t piece) const {
  const inbox::FurtherSlices& all = further_slices_of(peer_at_)[number & (peer_.receives - 1)];
  const iwarp::LocalSlice copy = all[piece - 1];
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return copy;
}

bool LocalConnection::push(const inbox::MessageHeader& header, std::span<const iovec> payload) {
  if (!writer_.push(header, payload)) return false;
  announce(header);
  return true;
}

void LocalConnection::announce_to(inbox::Armed armed, const inbox::MessageHeader& header) {
  const bool counts = armed == inbox::Armed::any || (header.flags & inbox::flag_solicited) != 0 ||
                      header.kind >= inbox::Kind::request;
  // Only one of several messages wakes the peer.
  if (counts && peer_at_->armed.exchange(inbox::Armed::no) != inbox::Armed::no) wake();
}

void LocalConnection::report_end(inbox::End end) {
  inbox::End none = inbox::End::none;
  // The first reason counts.
  peer_at_->end.compare_exchange_strong(none, end);
  // A peer that has reported its own end before does not look for another one. If both report at
  // once, each of them sees that of the other, or wakes it.
  if (own_at_->end.load(std::memory_order_seq_cst) == inbox::End::none) wire_->wake_waiter();
}

void LocalConnection::close_memory() {
  // Sequentially consistent with the announcement of a copy: either the peer sees 0, or
  // await_access() sees the copy.
  own_at_->open.store(0, std::memory_order_seq_cst);
  await_access();
}

void LocalConnection::await_access() const {
  await_copy(*own_at_, *peer_.process);
}

void LocalConnection::abandon_after_fork() {
  wire_->abandon_after_fork();
}

}  // namespace weft::device
