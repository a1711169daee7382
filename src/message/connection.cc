// The handles Connection, Sending and Received. Link and Record implement them.
#include "weft/message/connection.hpp"

#include <stdexcept>

#include "message/link.h"
#include "weft/handle.hpp"

namespace weft::message {

Rejected::Rejected(RejectReason reason, const std::string& what,
                   std::vector<std::byte> private_data, ErrorDetail detail)
    : Error(ECONNREFUSED, what, std::move(detail)),
      reason_(reason),
      private_data_(std::move(private_data)) {}

// The block counts against the limit of the pool from now on, because the peer's message occupies
// it for an unknown time.
// The handle is empty afterwards, by which the link sees that the memory was kept.
Buffer Received::keep() {
  if (buffer_) buffer_.block_->pool->count(*buffer_.block_);
  return std::move(buffer_);
}

// --- Sending -------------------------------------------------------------------------------------

Status Sending::status() const {
  return record_ ? record_->status.load() : Status::failed;
}

// A message that was not accepted has no record: the error is in the handle.
int Sending::error_number() const {
  return record_ ? record_->error.load() : error_;
}

std::uint64_t Sending::size_bytes() const {
  return record_ ? record_->bytes : 0;
}

std::uint32_t Sending::type() const {
  return record_ ? record_->type : 0;
}

std::uint64_t Sending::tag() const {
  return record_ ? record_->tag : 0;
}

// --- Connection ----------------------------------------------------------------------------------

// Every call of a handle goes through here, which checks the thread.
detail::Link& Connection::link() const {
  if (!link_) weft::detail::throw_empty("weft::message::Connection");
  link_->check_thread();
  return *link_;
}

Sending Connection::send(std::span<const std::byte> bytes, const SendOptions& options) {
  return link().send_copy(bytes, options);
}

Sending Connection::send(const Buffer& buffer, const SendOptions& options) {
  return link().send_buffer(buffer, options);
}

Sending Connection::send(std::span<const LocalSlice> pieces, const SendOptions& options) {
  return link().send_pieces(pieces, options);
}

Buffer Connection::allocate(std::size_t bytes) const {
  return link().allocate(bytes);
}

const verbs::ProtectionDomain& Connection::domain() const {
  return link().domain();
}

std::optional<Received> Connection::try_receive() {
  return link().receive();
}

void Connection::disconnect() {
  link().disconnect();
}

void Connection::disconnect_after_sending() {
  link().disconnect_after_sending();
}

State Connection::state() const {
  return link().state();
}

bool Connection::writable() const {
  return link().writable();
}

std::uint64_t Connection::max_message_bytes() const {
  return link().max_message_bytes();
}

Statistics Connection::statistics() const {
  return link().statistics();
}

std::span<const std::byte> Connection::peer_private_data() const {
  return link().peer_private_data();
}

std::string Connection::local_address() const {
  return link().local_address();
}

std::string Connection::peer_address() const {
  return link().peer_address();
}

void Connection::set_handlers(Handlers handlers) {
  link().set_handlers(std::move(handlers));
}

void* Connection::user() const {
  return link().user;
}

void Connection::set_user(void* user) {
  link().user = user;
}

}  // namespace weft::message
