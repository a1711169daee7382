#include "stream/data_channel.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace weft::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Copies from this length on release the lock, so that other threads can use the stream meanwhile.
// For shorter ones the lock costs more than the copy.
constexpr std::size_t long_copy_bytes = 4096;

int errno_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_WR_FLUSH_ERR:
      return ECONNRESET;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return ETIMEDOUT;
    default:
      return EPROTO;
  }
}

std::uint32_t clamp_to_32_bits(std::size_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(bytes, std::numeric_limits<std::uint32_t>::max()));
}

template <typename Copy>
void copy_unlocked(DataChannel::Lock& lock, std::size_t bytes, const Copy& copy) {
  if (bytes < long_copy_bytes) {
    copy();
    return;
  }
  lock.unlock();
  copy();
  lock.lock();
}

}  // namespace

// --- Opening -------------------------------------------------------------------------------------

void DataChannel::open_transport(const verbs::Id& id, const Options& options) {
  transport_.emplace(id, options);
  peer_maps_.resize(options.mapped_buffers);
}

// The rows of our own mappings are limited by the table of the peer.
void DataChannel::open_flow(const StreamGreeting& peer, std::uint8_t variant) {
  flow_.emplace(transport_->connect(peer, variant));
  local_maps_.resize(peer.rows);
  keepalive_.received(Clock::now());
}

// --- Progress ------------------------------------------------------------------------------------

// Control messages are sent once after all completions, so that one update can return the space and
// the receives of many messages.
bool DataChannel::poll() {
  if (!flow_) return false;
  const bool any = transport_->queue().for_each(
                       [this](const verbs::Completion& completion) { handle(completion); }) > 0;
  if (any) send_control();
  return any;
}

void DataChannel::handle(const verbs::Completion& completion) {
  if (completion.ok()) {
    keepalive_.received(Clock::now());
  } else {
    break_off(errno_of(completion.status()));  // only the first error counts
  }
  // Failed requests give their places back as well, so that a call that waits for them returns.
  const RequestId request = RequestId::decode(completion.id());
  switch (request.kind) {
    case RequestId::Kind::receive:
      if (completion.ok()) received(completion, request.number);
      break;
    case RequestId::Kind::data:
      flow_->sent(request.number);
      break;
    case RequestId::Kind::control:
      flow_->control_sent();
      break;
    case RequestId::Kind::probe:
      keepalive_.probe_completed();
      statistics_.answered_probes += completion.ok();
      break;
    case RequestId::Kind::ignored:
      break;
  }
}

// Checks the form of a message, posts its receive again and then counts it: FlowControl may
// promise the receive to the peer as soon as it has counted the message.
void DataChannel::received(const verbs::Completion& completion, std::uint32_t slot) {
  const auto immediate = completion.immediate();
  const bool by_immediate = transport_->variant() == Variant::immediate;
  if (immediate.has_value() != by_immediate ||
      (!by_immediate && completion.size_bytes() != sizeof(std::uint32_t))) {
    violated();
    return;
  }
  const std::uint32_t word = by_immediate ? *immediate : transport_->word_in(slot);
  std::optional<std::uint32_t> bytes;
  if (by_immediate) bytes = completion.size_bytes();
  if (const int failed = transport_->post_receive(slot)) break_off(failed);
  if (!flow_->received(word, bytes)) {
    violated();
    return;
  }
  handle_word(word);
}

// Counts the message. A mapping takes effect here: its row was written before the word arrived.
void DataChannel::handle_word(std::uint32_t word) {
  if (is_update(word)) {
    const Update update = update_of(word);
    statistics_.updates_received += update.bytes > 0 || update.receives > 0;
  } else if (kind_of(word) == Kind::data) {
    ++statistics_.data_messages_received;
    statistics_.bytes_received += value_of(word);
  } else if (kind_of(word) == Kind::map) {
    if (value_of(word) >= peer_maps_.size()) {
      violated();
    } else {
      const auto row = MapRow::from_bytes(transport_->row(value_of(word)));
      peer_maps_.set(value_of(word), Mapping::of(row));
    }
  }
}

void DataChannel::send_control() {
  while (error_ == 0) {
    const auto word = flow_->next_control();
    if (!word) return;
    if (const int failed = transport_->post_control(*word)) {
      flow_->control_sent();
      break_off(failed);
      return;
    }
    const Update update = update_of(*word);
    statistics_.updates_sent += is_update(*word) && (update.bytes > 0 || update.receives > 0);
  }
}

// --- Sending -------------------------------------------------------------------------------------

std::size_t DataChannel::send_piece(Lock& lock, Gather& from, std::size_t max) {
  const Piece piece = flow_->take(clamp_to_32_bits(max));
  if (piece.bytes == 0) return 0;
  // The piece is reserved, so no other call touches these bytes of the ring without the lock.
  copy_unlocked(lock, piece.bytes,
                [&] { from.copy(transport_->send_ring().subspan(piece.from, piece.bytes)); });
  if (const int error = transport_->post_piece(piece)) {
    flow_->sent(piece.bytes);
    break_off(error);
    return 0;
  }
  ++statistics_.data_messages_sent;
  statistics_.bytes_sent += piece.bytes;
  return piece.bytes;
}

// The bytes do not go through the send ring, so completion gives back no ring space.
std::size_t DataChannel::send_registered(const verbs::LocalSlice& from, std::size_t done) {
  const Piece piece = flow_->take_direct(clamp_to_32_bits(from.size_bytes() - done));
  if (piece.bytes == 0) return 0;
  if (const int error = transport_->post_data(from.slice(done, piece.bytes), piece.to, 0)) {
    flow_->sent(0);
    break_off(error);
    return 0;
  }
  ++statistics_.data_messages_sent;
  statistics_.bytes_sent += piece.bytes;
  return piece.bytes;
}

std::size_t DataChannel::write_mapped(std::span<const std::byte> from, const verbs::RemoteSlice& to,
                                      std::size_t done) {
  const Piece piece = flow_->take_mapped(clamp_to_32_bits(from.size() - done));
  if (piece.bytes == 0) return 0;
  std::ranges::copy(from.subspan(done, piece.bytes),
                    transport_->send_ring().subspan(piece.from, piece.bytes).begin());
  if (const int error = transport_->post_mapped_write(piece, to.slice(done, piece.bytes))) {
    flow_->sent(piece.bytes);
    break_off(error);
    return 0;
  }
  return piece.bytes;
}

int DataChannel::send_row(std::uint32_t row, const Mapping& mapping) {
  const auto bytes = mapping.to_row().to_bytes();
  const int error = transport_->post_row(row, bytes);
  if (error != 0) {
    flow_->sent(0);
    break_off(error);
  }
  return error;
}

void DataChannel::send_probe() {
  if (const int failed = transport_->post_probe()) {
    break_off(failed);
    return;
  }
  keepalive_.probe_sent(Clock::now());
}

// --- Receiving -----------------------------------------------------------------------------------

// At most two rounds: up to the end of the ring, and from its beginning. The bytes become free for
// the peer only after they are copied.
std::size_t DataChannel::receive_some(Lock& lock, Scatter& into, std::size_t max, bool peek) {
  const auto ring = transport_->receive_ring();
  std::size_t done = 0;
  std::uint32_t at = flow_->read_at();
  std::size_t left = std::min<std::size_t>(max, flow_->readable());
  while (left > 0) {
    const std::size_t bytes = std::min(left, ring.size() - at);
    copy_unlocked(lock, bytes, [&] { into.copy(ring.subspan(at, bytes)); });
    if (!peek) flow_->read(static_cast<std::uint32_t>(bytes));
    at = 0;
    done += bytes;
    left -= bytes;
  }
  if (!peek && done > 0) send_control();
  return done;
}

// --- The end -------------------------------------------------------------------------------------

// Notifies calls that wait: what they wait for cannot happen any more.
void DataChannel::break_off(int error) {
  if (error_ != 0) return;
  error_ = error;
  changed_.notify_all();
}

// The state of a peer that violates the protocol is unknown, so nothing more is accepted from it.
void DataChannel::violated() {
  break_off(EPROTO);
  violated_ = true;
}

}  // namespace weft::stream::detail
