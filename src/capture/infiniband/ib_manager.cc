#include "capture/infiniband/ib_manager.h"

#include <algorithm>
#include <utility>

namespace weft::capture {
namespace {

// Returns the private data at the end of a connection manager message, without `skipped` bytes of a
// protocol header.
template <typename Message>
Bytes private_data_of(Bytes message, std::size_t skipped = 0) {
  message = message.subspan(Message::header_bytes);
  message = message.first(std::min(message.size(), Message::private_bytes));
  return message.subspan(std::min(message.size(), skipped));
}

}  // namespace

// Dispatches one management datagram; other classes than connection management are ignored.
void IbManager::on_datagram(const Envelope& envelope, Bytes payload) {
  const auto mad = wire::MadHeader::parse(payload);
  if (!mad || mad->management_class != wire::connection_management_class) return;
  const Bytes message = payload.subspan(wire::MadHeader::header_bytes);
  switch (mad->attribute) {
    case wire::CmAttribute::request:
      return on_request(envelope, mad->transaction, message);
    case wire::CmAttribute::reply:
      return on_reply(envelope, message);
    case wire::CmAttribute::reject:
      return on_reject(envelope, message);
    case wire::CmAttribute::ready_to_use:
    case wire::CmAttribute::disconnect_request:
    case wire::CmAttribute::disconnect_reply:
      return on_pair(envelope, message, mad->attribute);
    case wire::CmAttribute::service_id_reply:
      return on_service_reply(envelope, message);
    default:
      return;
  }
}

bool IbManager::awaits_reply(const HostAddress& from, const HostAddress& to) const {
  return std::ranges::any_of(known_, [&](const Known& known) {
    return !known.replied && !known.ended && known.active == from && known.passive == to;
  });
}

IbManager::Known* IbManager::find(const Envelope& envelope, std::uint32_t local_id,
                                  std::uint32_t remote_id) {
  // Communication ids are reused, so the latest connection counts.
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    // Before the first reply the id of the passive side is unknown, so any id of it matches.
    const bool from_active =
        local_id == known->active_id && (!known->replied || remote_id == known->passive_id) &&
        envelope.source == known->active && envelope.destination == known->passive;
    const bool from_passive =
        remote_id == known->active_id && (!known->replied || local_id == known->passive_id) &&
        envelope.source == known->passive && envelope.destination == known->active;
    if (from_active || from_passive) return &*known;
  }
  return nullptr;
}

// A REQ is sent again as it is, with its transaction ID (Architecture Specification, volume 1,
// §13.4.6.4), so one with any other number requests another connection. One with equal numbers may
// be captured behind the end of its connection.
bool IbManager::is_repeated(const Known& known, const Envelope& envelope, std::uint64_t transaction,
                            const wire::CmRequest& message) {
  // Many are compared, and the numbers differ in most of them.
  const bool equal = known.active_id == message.local_id && known.transaction == transaction &&
                     known.queue_pair == message.local_qp &&
                     known.starting_psn == message.starting_psn &&
                     known.active == envelope.source && known.passive == envelope.destination;
  if (!equal || !known.ended) return equal;
  const Connection& connection = known.connection->connection();
  const bool rejected = connection.end == Connection::End::rejected;
  const std::int64_t since_ns = envelope.stamp.time_ns - connection.last.time_ns;
  return since_ns < (rejected ? repeated_ns : late_ns);
}

// The IP CM service puts its own header before the user's private data (Annex A11).
void IbManager::on_request(const Envelope& envelope, std::uint64_t transaction, Bytes bytes) {
  const auto message = wire::CmRequest::parse(bytes);
  if (!message) return;
  const auto repeated = std::ranges::find_if(known_, [&](const Known& known) {
    return is_repeated(known, envelope, transaction, *message);
  });
  if (repeated != known_.end()) return repeated->connection->count(envelope.stamp);
  // This bounds the memory: the oldest connection is no longer found by its ids.
  if (known_.size() == most_known) known_.pop_front();
  const std::size_t skipped =
      wire::CmIpHeader::belongs_to(message->service) ? wire::CmIpHeader::header_bytes : 0;
  IbConnection& connection =
      events_.on_request({envelope, *message, private_data_of<wire::CmRequest>(bytes, skipped)});
  known_.push_back({.active = envelope.source,
                    .passive = envelope.destination,
                    .active_id = message->local_id,
                    .queue_pair = message->local_qp,
                    .starting_psn = message->starting_psn,
                    .transaction = transaction,
                    .connection = &connection});
  take_early(envelope, message->local_id);
}

void IbManager::keep_early(const Envelope& envelope, wire::CmAttribute attribute, Bytes message,
                           std::uint32_t active_id) {
  if (early_.size() == most_early) early_.pop_front();
  early_.push_back({envelope, attribute, {message.begin(), message.end()}, active_id});
}

void IbManager::take_early(const Envelope& envelope, std::uint32_t active_id) {
  const auto answers = [&](const Early& early) {
    return early.active_id == active_id && early.envelope.source == envelope.destination &&
           early.envelope.destination == envelope.source &&
           envelope.stamp.time_ns - early.envelope.stamp.time_ns <= early_ns;
  };
  const auto found = std::ranges::find_if(early_, answers);
  if (found == early_.end()) return;
  const Early early = std::move(*found);
  early_.erase(found);
  if (early.attribute == wire::CmAttribute::reply) return on_reply(early.envelope, early.message);
  on_reject(early.envelope, early.message);
}

// Only the first REP counts; the active side may receive several.
void IbManager::on_reply(const Envelope& envelope, Bytes bytes) {
  const auto message = wire::CmReply::parse(bytes);
  if (!message) return;
  Known* known = find(envelope, message->local_id, message->remote_id);
  if (!known) return keep_early(envelope, wire::CmAttribute::reply, bytes, message->remote_id);
  known->connection->count(envelope.stamp);
  if (known->replied) return;
  known->replied = true;
  known->passive_id = message->local_id;
  events_.on_established(*known->connection,
                         {envelope, *message, private_data_of<wire::CmReply>(bytes)});
}

// A REJ ends the connection, whichever side sent it.
void IbManager::on_reject(const Envelope& envelope, Bytes bytes) {
  const auto message = wire::CmReject::parse(bytes);
  if (!message) return;
  Known* known = find(envelope, message->local_id, message->remote_id);
  if (!known) return keep_early(envelope, wire::CmAttribute::reject, bytes, message->remote_id);
  if (known->ended) return;
  known->ended = true;
  known->connection->count(envelope.stamp);
  known->connection->connection().reject_reason = message->reason;
  known->connection->end(envelope.stamp, Connection::End::rejected);
}

// RTU, DREQ and DREP name both ids. DREQ closes one side and DREP the connection.
void IbManager::on_pair(const Envelope& envelope, Bytes bytes, wire::CmAttribute attribute) {
  const auto message = wire::CmPair::parse(bytes);
  if (!message) return;
  Known* known = find(envelope, message->local_id, message->remote_id);
  if (!known) return;
  known->connection->count(envelope.stamp);
  Connection& connection = known->connection->connection();
  // These messages follow a reply. Where the capture lacks it, it may lack the answer to a
  // disconnection as well.
  if (connection.end == Connection::End::unanswered) connection.end = Connection::End::open;
  if (attribute == wire::CmAttribute::disconnect_request && known->replied) {
    if (connection.end == Connection::End::open) connection.end = Connection::End::half_open;
  }
  if (attribute == wire::CmAttribute::disconnect_reply && !known->ended) {
    known->ended = true;
    known->connection->end(envelope.stamp, Connection::End::closed);
  }
}

// A SIDR_REP with status 0 names a datagram queue pair of its sender.
void IbManager::on_service_reply(const Envelope& envelope, Bytes bytes) {
  const auto message = wire::CmServiceReply::parse(bytes);
  if (!message || message->status != 0) return;
  events_.on_service(envelope.source, message->queue_pair);
}

}  // namespace weft::capture
