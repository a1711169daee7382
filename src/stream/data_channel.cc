#include "stream/data_channel.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace weft::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Copies from this length on release the lock, so that other threads can use the stream meanwhile.
// For shorter ones the lock costs more than the copy.
constexpr std::size_t long_copy_bytes = 4096;

// `ended`: the peer has sent its end. If it answers no more after that, it has closed. Weft's
// device names the cause of a lost connection in vendor_err (docs/coming-from.md); the codes that
// adapters have there for exhausted retries are other numbers.
int errno_of(const verbs::Completion& completion, bool ended) {
  switch (completion.status()) {
    case IBV_WC_WR_FLUSH_ERR:
      return ECONNRESET;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return ended || completion.vendor_error() == ECONNRESET ? ECONNRESET : ETIMEDOUT;
    default:
      return EPROTO;
  }
}

// A message has at most 32 bits of length; a longer call is cut into several.
std::uint32_t clamp_to_32_bits(std::size_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(bytes, std::numeric_limits<std::uint32_t>::max()));
}

// The bytes that are copied belong to this call alone: Turn keeps other callers of the same
// direction out.
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

DataChannel::~DataChannel() {
  if (transport_) transport_->queue().for_each([](const verbs::Completion& /*late*/) {});
}

void DataChannel::open_transport(const verbs::Id& id, const Options& options) {
  transport_.emplace(id, options);
  peer_maps_.resize(options.mapped_buffers);
  if (id.context().backend() == verbs::Backend::embedded) idle_rings_.enable();
}

// The rows of our own mappings are limited by the table of the peer.
void DataChannel::open_flow(const StreamGreeting& peer, std::uint8_t variant) {
  flow_.emplace(transport_->connect(peer, variant));
  local_maps_.resize(peer.rows);
  generation_ = fork_generation();
  // Both sides must have offered memory: each writes into that of the other.
  may_place_ = peer.shares_memory && transport_->counters();
  if (may_place_) reader_.emplace(transport_->counters());
  keepalive_.received(steady_now());
}

// --- Progress ------------------------------------------------------------------------------------

// Control messages are sent once after all completions, so that one update can return the space and
// the receives of many messages. FlowControl promises these to the peer there, so they are posted
// before.
bool DataChannel::poll_queue() {
  SpentReceives spent;
  const bool any = transport_->queue().for_each(
                       [&](const verbs::Completion& completion) { handle(completion, spent); }) > 0;
  if (!any) return false;
  if (std::exchange(succeeded_, false)) keepalive_.received(steady_now());
  post_spent_receives(spent);
  send_control();
  return true;
}

// The counters come second: the peer has published its last bytes before it has sent its end.
bool DataChannel::poll() {
  if (!flow_) return false;
  const bool completed = poll_queue();
  return look() || completed;
}

// Bytes may announce to the program what the peer has mapped or unmapped before.
bool DataChannel::look_before_messages() {
  return peer_maps_.size() == 0 ? look() : poll();
}

void DataChannel::handle(const verbs::Completion& completion, SpentReceives& spent) {
  if (completion.ok()) {
    succeeded_ = true;
  } else {
    break_off(errno_of(completion, end_received()));  // only the first error counts
  }
  // Failed requests give their places back as well, so that a call that waits for them returns.
  const RequestId request = RequestId::decode(completion.id());
  switch (request.kind) {
    case RequestId::Kind::receive:
      if (completion.ok()) received(completion, request.slot, spent);
      break;
    case RequestId::Kind::sent:
      flow_->sent(request.held.ring_bytes, request.held.messages);
      flow_->control_sent(request.held.controls);
      break;
    case RequestId::Kind::probe:
      keepalive_.probe_completed();
      statistics_.answered_probes += completion.ok();
      break;
    case RequestId::Kind::ignored:
      break;
  }
}

// Checks the form of a message and counts it. The receive is posted again later in the same poll().
void DataChannel::received(const verbs::Completion& completion, std::uint32_t slot,
                           SpentReceives& spent) {
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
  // Receives are posted in batches: one call of the device for many of them.
  if (spent.count == spent.slots.size()) post_spent_receives(spent);
  spent.slots[spent.count++] = slot;
  // Only a peer that was offered memory may announce that it places bytes there.
  const bool expected = reader_ || is_update(word) || kind_of(word) != Kind::place;
  if (!expected || !flow_->received(word, bytes)) {
    violated();
    return;
  }
  if (reader_ && kind_of(word) == Kind::data && !is_update(word))
    reader_->count_received(value_of(word));
  handle_word(word);
}

void DataChannel::post_spent_receives(SpentReceives& spent) {
  const auto slots = std::span(spent.slots).first(std::exchange(spent.count, 0));
  if (const int failed = transport_->post_receives(slots)) break_off(failed);
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
  } else if (kind_of(word) == Kind::wake) {
    handle_wake(word);
  }
}

void DataChannel::send_control() {
  while (error_ == 0) {
    const auto word = flow_->next_control();
    if (!word) return;
    // The stream closes once everything has completed, from its end on.
    const bool reports = !is_update(*word) || flow_->finished();
    // Its completion will not come, so it is counted off here.
    if (const int failed = transport_->post_control(*word, reports)) {
      flow_->control_sent();
      break_off(failed);
      return;
    }
    const Update update = update_of(*word);
    statistics_.updates_sent += is_update(*word) && (update.bytes > 0 || update.receives > 0);
  }
}

// --- Shared memory -------------------------------------------------------------------------------

// Nothing is taken here: a message that the peer has sent before these bytes comes first.
bool DataChannel::sees_changes() const {
  if (!flow_ || error_ == EPROTO) return false;
  return (waits_for_room() && writer_->room_waits()) ||
         (flow_->peer_places() && reader_->arrived() > 0);
}

bool DataChannel::look() {
  const bool room = flow_ && waits_for_room() && look_for_room();
  const bool bytes = flow_ && flow_->peer_places() && look_for_bytes();
  return room || bytes;
}

// Mapped writes that are under way make this side wait for completions, not for room.
bool DataChannel::waits_for_room() const {
  return flow_->is_placing() && !flow_->has_room();
}

bool DataChannel::look_for_room() {
  const auto bytes = writer_->take_room();
  if (!bytes) {
    violated();
    return true;
  }
  flow_->room_returned(*bytes);
  return *bytes > 0;
}

// The peer may publish anything: each step checks the values against the ring.
bool DataChannel::look_for_bytes() {
  std::uint64_t left = reader_->arrived();
  if (left == 0 || error_ == EPROTO) return false;
  statistics_.bytes_received += left;
  stop_bell();  // the request was for these bytes
  while (left > 0) {
    const bool grows = reader_->take_growth();
    const bool valid = !grows || flow_->received_placed_growth();
    const std::uint32_t bytes = valid ? flow_->received_placed(left) : 0;
    // More bytes than the ring has room for, or growth at a wrong place: the counters are not
    // trusted.
    if (bytes == 0) {
      violated();
      return true;
    }
    reader_->count_received(bytes);
    left -= bytes;
  }
  keepalive_.received(steady_now());
  return true;
}

// The peer's memory is known soon after the connection is established. Until then, and while a
// message is under way, data go on as messages.
void DataChannel::start_placing() {
  bool pending = false;
  auto [file, bell] = transport_->take_peer_memory(pending);
  if (pending) return;
  if (file.valid()) {
    const FlowSizes& sizes = flow_->sizes();
    writer_ = SharedRingWriter::open(std::move(file), std::move(bell), sizes.peer_ring_bytes,
                                     shared_ring_bytes(sizes.peer_ring_bytes, local_maps_.size(),
                                                       sizes.peer_receives + control_receives));
  }
  may_place_ = false;
}

// The word that announces it takes a receive, and may have to wait for one.
void DataChannel::announce_placing() {
  const auto word = flow_->start_placing();
  if (!word) return;
  // Counting goes on from the bytes that were sent as messages, so both sides agree on positions.
  writer_->start(statistics_.bytes_sent, flow_->peer_used());
  if (const int failed = transport_->post_word(*word)) {
    flow_->sent(0);
    break_off(failed);
  }
}

bool DataChannel::wakes_requested(WakeBy for_bytes) const {
  if (!flow_) return false;
  const bool needed = for_bytes != WakeBy::none && flow_->peer_places() && !flow_->end_received();
  const WakeBy made = needed ? reader_->wake().made() : for_bytes;
  const bool bytes = made == for_bytes || made == WakeBy::message;
  return bytes && (!waits_for_room() || writer_->wake().made() != WakeBy::none);
}

void DataChannel::request_wakes(WakeBy for_bytes) {
  if (for_bytes == WakeBy::message) stop_bell();
  if (for_bytes != WakeBy::none && flow_->peer_places() && !flow_->end_received()) {
    reader_->request_wake(for_bytes);
  }
  if (waits_for_room()) writer_->request_wake();
}

void DataChannel::note_bell() {
  if (reader_ && reader_->bell_is_rung()) stop_bell();
}

void DataChannel::stop_bell() {
  if (reader_ && reader_->take_back_bell()) ++bells_;
}

// The answer to request_wakes(). What has changed is found by look().
void DataChannel::handle_wake(std::uint32_t word) {
  const bool for_bytes = static_cast<Wake>(value_of(word)) == Wake::bytes;
  const bool expected =
      for_bytes ? reader_ && reader_->wake().answered() : writer_ && writer_->wake().answered();
  if (!expected) violated();
}

// --- Sending -------------------------------------------------------------------------------------

// A full part of the peer's ring may be extended instead of waiting until the peer has read.
void DataChannel::grow_if_full() {
  const auto word = flow_->take_growth();
  if (!word) return;
  if (const int error = transport_->post_word(*word)) {
    flow_->sent(0);
    break_off(error);
  }
}

std::size_t DataChannel::send_piece(Lock& lock, Gather& from, std::size_t max) {
  if (may_place_) start_placing();
  if (writer_ && !flow_->is_placing()) announce_placing();
  if (flow_->is_placing()) return place_piece(lock, from, max);
  if (!need_send_memory()) return 0;
  grow_if_full();
  const Piece piece = flow_->take(clamp_to_32_bits(max));
  if (piece.bytes == 0) return 0;
  idle_rings_.note_use(piece.from + piece.bytes);
  // The piece is reserved, so no other call touches these bytes of the ring without the lock.
  copy_unlocked(lock, piece.bytes,
                [&] { from.copy(transport_->send_ring().subspan(piece.from, piece.bytes)); });
  if (const int error = transport_->post_piece(piece, bytes_without_report())) {
    flow_->sent(piece.bytes);
    break_off(error);
    return 0;
  }
  count_sent(piece.bytes);
  return piece.bytes;
}

// A quarter of the part that is used. Where this side may come to place bytes itself, it does so
// once no message is under way, so each of them reports its completion.
std::uint32_t DataChannel::bytes_without_report() const {
  return may_place_ || writer_ ? 0 : flow_->own_part_bytes() / 4;
}

// False, with the error of the stream set, where there is no memory to send from.
bool DataChannel::need_send_memory() {
  if (transport_->has_send_memory()) return true;
  try {
    transport_->make_send_memory();
  } catch (const Error& error) {
    break_off(error.error_number());
  }
  return transport_->has_send_memory();
}

// The bytes go straight into the peer's ring, and the peer learns of them by the counter.
std::size_t DataChannel::place_piece(Lock& lock, Gather& from, std::size_t max) {
  // In a child of fork(2): the parent uses the same ring, and both would write to the same place.
  if (is_inherited()) {
    break_off(ENODEV);
    return 0;
  }
  // The peer's counter is read only where the known room does not suffice: it is in a cache line
  // that the peer writes to.
  if (flow_->peer_free() < std::min<std::size_t>(max, max_placed_bytes)) look_for_room();
  bool grown = false;
  const Piece piece = flow_->take_placed(clamp_to_32_bits(max), grown);
  if (grown) writer_->note_growth();
  if (piece.bytes == 0) return 0;
  idle_rings_.note_use(piece.to + piece.bytes);
  copy_unlocked(lock, piece.bytes,
                [&] { from.copy(writer_->ring().subspan(piece.to, piece.bytes)); });
  writer_->publish(piece.bytes);
  statistics_.bytes_sent += piece.bytes;
  statistics_.placed_bytes_sent += piece.bytes;
  // A message is sent only if the peer has asked to be woken. A peer that polls costs no system
  // call.
  if (writer_->reader_waits()) {
    flow_->wake_peer(Wake::bytes);
    send_control();
  }
  return piece.bytes;
}

// The bytes do not go through the send ring, so completion gives back no ring space.
std::size_t DataChannel::send_registered(Lock& lock, const verbs::LocalSlice& from,
                                         std::size_t done) {
  if (flow_->is_placing()) {
    const auto* const at = reinterpret_cast<const std::byte*>(from.address());
    const std::span rest(at + done, from.size_bytes() - done);
    Gather gather(std::span(&rest, 1));
    return place_piece(lock, gather, rest.size());
  }
  grow_if_full();
  // A piece of at most one message: the receive of the peer is used up by it.
  const Piece piece = flow_->take_direct(clamp_to_32_bits(from.size_bytes() - done));
  if (piece.bytes == 0) return 0;
  if (const int error = transport_->post_data(from.slice(done, piece.bytes), piece.to)) {
    flow_->sent(0);
    break_off(error);
    return 0;
  }
  count_sent(piece.bytes);
  return piece.bytes;
}

std::size_t DataChannel::write_mapped(std::span<const std::byte> from, const verbs::RemoteSlice& to,
                                      std::size_t done) {
  if (!need_send_memory()) return 0;
  const Piece piece = flow_->take_mapped(clamp_to_32_bits(from.size() - done));
  if (piece.bytes == 0) return 0;
  idle_rings_.note_use(piece.from + piece.bytes);
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
  const int error = need_send_memory() ? transport_->post_row(row, bytes) : error_;
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
  keepalive_.probe_sent(steady_now());
}

void DataChannel::count_sent(std::uint32_t bytes) {
  ++statistics_.data_messages_sent;
  statistics_.bytes_sent += bytes;
}

// --- Receiving -----------------------------------------------------------------------------------

// The bytes become free for the peer only after they are copied.
std::size_t DataChannel::receive_some(Lock& lock, Scatter& into, std::size_t max, bool peek) {
  const auto ring = transport_->receive_ring();
  const std::size_t wanted = std::min<std::size_t>(max, flow_->readable());
  std::size_t done = 0;
  while (done < wanted) {
    // Bytes may continue at the beginning of the ring, so they are copied in up to two runs.
    const auto [at, side_by_side] = flow_->unread(peek ? static_cast<std::uint32_t>(done) : 0);
    const std::size_t bytes =
        std::min<std::size_t>({wanted - done, side_by_side, max_placed_bytes});
    copy_unlocked(lock, bytes, [&, at = at] { into.copy(ring.subspan(at, bytes)); });
    if (!peek) read(static_cast<std::uint32_t>(bytes));
    done += bytes;
  }
  if (!peek && done > 0) send_control();
  return done;
}

// A writer that waits for room is woken here, because no read does it.
void DataChannel::want(std::size_t bytes) {
  if (!flow_ || error_ != 0 || is_inherited()) return;
  flow_->want(clamp_to_32_bits(bytes));
  if (bytes == 0) return;
  const bool has_room = flow_->readable() < flow_->receive_part_bytes();
  if (has_room && flow_->peer_places() && reader_->writer_waits()) flow_->wake_peer(Wake::room);
  send_control();
}

std::span<const std::byte> DataChannel::unread() const {
  const auto [at, side_by_side] = flow_->unread();
  return transport_->receive_ring().subspan(at, side_by_side);
}

void DataChannel::consume(std::size_t bytes) {
  if (bytes == 0) return;
  read(static_cast<std::uint32_t>(bytes));
  send_control();
}

// A writer that waits for room is woken once half of the ring is free, and not for each read.
void DataChannel::read(std::uint32_t bytes) {
  flow_->read(bytes);
  if (!reader_ || is_inherited()) return;
  reader_->count_read(bytes);
  const bool enough = flow_->readable() <= flow_->receive_part_bytes() / 2;
  if (!flow_->peer_places() || !enough || !reader_->writer_waits()) return;
  flow_->wake_peer(Wake::room);
  send_control();
}

// --- Memory --------------------------------------------------------------------------------------

// A call that copies without the lock has taken its bytes, so that the ring is not empty.
void DataChannel::give_back_pages() {
  if (!flow_ || error_ != 0 || is_inherited() || !idle_rings_.is_quiet(statistics_.bytes_sent))
    return;
  if (writer_ && flow_->is_placing()) {
    look_for_room();
    if (flow_->peer_used() > 0) return;
    writer_->give_back_pages(IdleRings::kept_bytes);
  }
  if (flow_->own_used() > 0) return ask_for_report();
  transport_->give_back_send_pages(IdleRings::kept_bytes);
  idle_rings_.given_back();
}

// The bytes of messages without a report of their own stay in the ring until a later one reports.
void DataChannel::ask_for_report() {
  if (!transport_->reports_wait() || !flow_->take_place()) return;
  if (const int failed = transport_->post_report()) {
    flow_->sent(0);
    break_off(failed);
  }
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
