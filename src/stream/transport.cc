#include "stream/transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <numeric>
#include <vector>

#include "base/own_descriptors.h"
#include "base/size.h"
#include "provider/shared.h"
#include "stream/ring_map_wire.h"
#include "stream/word_wire.h"

namespace weft::stream::detail {
namespace {

constexpr std::uint32_t max_probes = 1;  // under way at once
// Rows of the peer's table. Each has a place of its own behind our send ring, so that a row can be
// sent while another one still is under way.
constexpr std::uint32_t max_rows = 255;

// The variants that this side may agree to, as bits.
std::uint8_t variants_of(const Options& options, const verbs::Context& context) {
  switch (options.variant) {
    case Variant::immediate:
      return variant_immediate;
    case Variant::write_and_send:
      return variant_write_and_send;
    case Variant::automatic:
      break;
  }
  // RFC 7306 defines immediates for iWARP, but iWARP adapters do not implement it.
  const bool adapter = context.backend() == verbs::Backend::system &&
                       context.raw()->device->transport_type == IBV_TRANSPORT_IWARP;
  return adapter ? variant_write_and_send : variant_immediate | variant_write_and_send;
}

// Room for control messages is kept apart, so that returning room never waits for data to be sent.
std::uint32_t sends_of(const Options& options) {
  return options.send_queue + max_control_sends + max_probes;
}
std::uint32_t receives_of(const Options& options) {
  return options.receive_queue + control_receives;
}

// Compares the addresses without their ports.
bool same_address(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET6) {
    const auto& one = reinterpret_cast<const sockaddr_in6&>(a);
    const auto& other = reinterpret_cast<const sockaddr_in6&>(b);
    return std::ranges::equal(one.sin6_addr.s6_addr, other.sin6_addr.s6_addr);
  }
  return a.ss_family == AF_INET && reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
                                       reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
}

// Only a peer with the address of this side can be a process of this host, and map our ring.
bool may_share_memory(const verbs::Id& id) {
  const rdma_addr& ends = id.raw()->route.addr;
  return id.context().backend() == verbs::Backend::embedded &&
         same_address(ends.src_storage, ends.dst_storage);
}

// The bytes of such a peer need no receives once it has mapped the ring. Each one costs memory, and
// time when it is created, published and flushed, so there are fewer unless the program has set a
// number: with those of control messages a power of two, which the device has places for.
Options for_peer(const Options& options, const verbs::Id& id) {
  constexpr std::uint32_t enough = 32 - control_receives;
  Options changed = options;
  if (changed.receive_queue == Options().receive_queue && may_share_memory(id)) {
    changed.receive_queue = enough;
  }
  return changed;
}

// Throws Error(EINVAL) if the device has not enough work requests; the text names the maximum.
Options need_room(const Options& options, const verbs::Context& context) {
  const auto device = context.query();
  const auto max = static_cast<std::uint32_t>(device.max_qp_wr);
  if (sends_of(options) > max) {
    throw Error(EINVAL, fmt::format("send_queue {}: {} has room for {}", options.send_queue,
                                    context.device_name(), max - max_control_sends - max_probes));
  }
  if (receives_of(options) > max) {
    throw Error(EINVAL, fmt::format("receive_queue {}: {} has room for {}", options.receive_queue,
                                    context.device_name(), max - control_receives));
  }
  // One completion queue serves both. Some devices have larger queue pairs than completion queues.
  if (sends_of(options) + receives_of(options) > static_cast<std::uint32_t>(device.max_cqe)) {
    const bool receives = options.receive_queue > options.send_queue;
    throw Error(EINVAL, fmt::format("{} {}: a completion queue of {} has room for {} in all",
                                    receives ? "receive_queue" : "send_queue",
                                    std::max(options.receive_queue, options.send_queue),
                                    context.device_name(), device.max_cqe));
  }
  return options;
}

// A buffer keeps the size that was asked for, and grows if none was.
std::uint32_t ring_bytes(std::uint32_t buffer_bytes, const Options& options,
                         const verbs::Context& context) {
  // An adapter pins the whole ring when it is registered, so it does not grow there.
  if (context.backend() != verbs::Backend::embedded) return buffer_bytes;
  const std::uint32_t unasked = buffer_bytes == default_buffer_bytes ? default_growth_bytes : 0;
  return std::max(buffer_bytes, options.growth_bytes.value_or(unasked));
}

RingMemory make_receive_memory(const verbs::Id& id, std::size_t bytes, Descriptor& file) {
  return may_share_memory(id) ? RingMemory::make_shared(ring_offset + bytes, file)
                              : RingMemory(bytes);
}

// At most a quarter of the places may be taken by messages that are complete without a report. A
// message takes up to two.
Reports::Limits limits_of(const Options& options) {
  return {.messages = static_cast<std::uint16_t>(
              std::min<std::uint32_t>(options.send_queue / 8, Reports::most_messages)),
          .controls = max_control_sends / 4};
}

ibv_qp_cap capacity(const Options& options) {
  return {.max_send_wr = sends_of(options),
          .max_recv_wr = receives_of(options),
          .max_send_sge = 1,
          .max_recv_sge = 1,
          // The word of a message in write_and_send goes inline, so it needs no registered memory.
          .max_inline_data = word_bytes};
}

}  // namespace

Transport::Sizes Transport::sizes_of(const Options& options, const verbs::Context& context) {
  Sizes sizes;
  sizes.send_ring = ring_bytes(options.send_buffer_bytes, options, context);
  sizes.send_part = std::min(options.send_buffer_bytes, sizes.send_ring);
  sizes.receive_ring = ring_bytes(options.receive_buffer_bytes, options, context);
  sizes.receive_part = options.receive_buffer_bytes;
  sizes.rows_at = to_size(table_offset(sizes.send_ring));
  sizes.send = sizes.rows_at + std::size_t{max_rows} * row_bytes;
  sizes.slots_at = to_size(region_bytes(sizes.receive_ring, options.mapped_buffers));
  sizes.receive =
      to_size(owned_bytes(sizes.receive_ring, options.mapped_buffers, receives_of(options)));
  return sizes;
}

Transport::Transport(const verbs::Id& id, const Options& options)
    : Transport(id, Checked{need_room(for_peer(options, id), id.context())}) {}

// The options are not kept, as an idle stream is to take little memory.
Transport::Transport(const verbs::Id& id, const Checked& checked)
    : sizes_(sizes_of(checked.options, id.context())),
      counts_{.sends = checked.options.send_queue,
              .receives = checked.options.receive_queue,
              .mapped_buffers = checked.options.mapped_buffers},
      variants_(variants_of(checked.options, id.context())),
      domain_(id.context().create_domain()),
      channel_(id.context().create_channel()),
      queue_(id.context().create_completion_queue(
          static_cast<int>(sends_of(checked.options) + receives_of(checked.options)),
          {.channel = &channel_})),
      receive_memory_(make_receive_memory(id, sizes_.receive, receive_file_)),
      receive_ring_(domain_.register_memory(receive_memory_.bytes().last(sizes_.receive),
                                            verbs::Access::remote_write)),
      queue_pair_(id.create_queue_pair(domain_, queue_, queue_, capacity(checked.options))),
      reports_(limits_of(checked.options)) {
  if (!may_share_memory(id)) make_send_memory();
  // All receives are posted before the peer can know the queue pair: rdma_connect(3) and
  // rdma_accept(3) come later.
  std::vector<std::uint32_t> slots(receives_of(checked.options));
  std::iota(slots.begin(), slots.end(), 0U);
  if (const int failed = post_receives(slots)) {
    throw Error(failed, "cannot post the receives of a stream");
  }
}

StreamGreeting Transport::greeting(GreetingType type) const {
  StreamGreeting greeting;
  greeting.type = type;
  greeting.receives = static_cast<std::uint16_t>(counts_.receives);
  greeting.ring_address = receive_ring_.remote().address();
  greeting.ring_rkey = receive_ring_.rkey();
  greeting.ring_bytes = sizes_.receive_ring;
  greeting.part_log2 = part_log2();
  greeting.variants = variants_;
  greeting.rows = static_cast<std::uint8_t>(counts_.mapped_buffers);
  return greeting;
}

bool Transport::offer_memory(int bell) {
  if (!receive_file_.valid()) return false;
  SharedRingReader::prepare(receive_memory_.bytes().data());
  const int copy = bell >= 0 ? own_descriptors::copy_high(bell) : -1;
  offered_ = provider::shared_embedded().share_memory(queue_pair_.raw(), receive_file_.release(),
                                                      copy) == 0;
  rings_ = offered_ && copy >= 0;
  return offered_;
}

Transport::PeerMemory Transport::take_peer_memory(bool& pending) {
  int bell = -1;
  Descriptor file(provider::shared_embedded().take_shared_memory(queue_pair_.raw(), &bell));
  pending = !file.valid() && errno == EAGAIN;
  return {.file = std::move(file), .bell = Descriptor(bell)};
}

std::byte* Transport::counters() const {
  return offered_ ? receive_memory_.bytes().data() : nullptr;
}

// In write_and_send each message takes two requests, so the queue holds half as many messages.
FlowSizes Transport::connect(const StreamGreeting& peer, std::uint8_t variant) {
  immediate_ = variant == variant_immediate;
  peer_ring_ = {peer.ring_address, peer.ring_bytes, peer.ring_rkey};
  peer_table_ = {peer.ring_address + table_offset(peer.ring_bytes),
                 std::uint64_t{peer.rows} * row_bytes, peer.ring_rkey};
  // Both sides must know the scheme; part_log2 0 is a peer that does not.
  const bool grows = peer.part_log2 != 0;
  return {.send_ring_bytes = sizes_.send_ring,
          .sends = immediate_ ? counts_.sends : counts_.sends / 2,
          .peer_ring_bytes = peer.ring_bytes,
          .peer_receives = peer.receives,
          .receive_ring_bytes = sizes_.receive_ring,
          .receives = counts_.receives,
          .send_part_bytes = sizes_.send_part,
          .peer_part_bytes = grows ? std::uint32_t{1} << peer.part_log2 : 0,
          .receive_part_bytes = grows ? std::uint32_t{1} << part_log2() : 0};
}

// The whole part of a ring that does not grow. A growing one starts with the size of the buffer,
// rounded down to a power of two.
std::uint8_t Transport::part_log2() const {
  constexpr std::uint8_t whole = 31;
  if (sizes_.receive_part == sizes_.receive_ring) return whole;
  return static_cast<std::uint8_t>(
      std::max<unsigned>(std::bit_width(sizes_.receive_part) - 1U, 1U));
}

// --- Memory --------------------------------------------------------------------------------------

void Transport::make_send_memory() {
  RingMemory memory(sizes_.send);
  auto region = domain_.register_memory(memory.bytes());
  send_.emplace(std::move(memory), std::move(region));
}

std::size_t Transport::slot_at(std::uint32_t number) const {
  return sizes_.slots_at + std::size_t{number} * word_bytes;
}

std::uint32_t Transport::word_in(std::uint32_t slot) const {
  return word_from_bytes(receive_ring_.elements().subspan(slot_at(slot)).first<word_bytes>());
}

std::span<const std::byte> Transport::row(std::uint32_t number) const {
  return receive_ring_.elements().subspan(
      to_size(table_offset(sizes_.receive_ring)) + std::size_t{number} * row_bytes, row_bytes);
}

// --- Posting -------------------------------------------------------------------------------------

int Transport::post_receives(std::span<const std::uint32_t> slots) {
  auto batch = queue_pair_.receive_batch<max_receives_at_once>();
  for (const std::uint32_t number : slots) {
    const std::uint64_t id = RequestId::receive(number).encode();
    const verbs::LocalSlice slot = receive_ring_.slice(slot_at(number), word_bytes);
    if (batch.receive(slot, id)) continue;
    if (const int failed = batch.submit()) return failed;
    (void)batch.receive(slot, id);  // fits: the batch is empty
  }
  return batch.submit();
}

// Posts one message of either variant: `bytes` are written to `to`, and `word` is delivered.
int Transport::post_message(const verbs::LocalSlice& bytes, const verbs::RemoteSlice& to,
                            std::uint32_t word, const std::optional<Held>& reported) {
  using verbs::SendFlags;
  const std::uint64_t ignored = RequestId::other(RequestId::Kind::ignored).encode();
  const std::uint64_t id = reported ? RequestId::sent(*reported).encode() : ignored;
  const SendFlags flags = reported ? SendFlags::signaled : SendFlags::none;
  if (immediate_) return queue_pair_.post_write_with_immediate(bytes, to, word, id, flags);
  const std::array<std::byte, word_bytes> encoded_word = word_to_bytes(word);
  // The send is inline, which copies the bytes during the call and needs no lkey.
  const verbs::LocalSlice message(reinterpret_cast<std::uint64_t>(encoded_word.data()), word_bytes,
                                  0);
  auto batch = queue_pair_.batch<2>();
  // The send is delivered only after the write is placed: RFC 5040 §5.5 for iWARP; InfiniBand
  // executes the requests of a queue pair in order as well.
  if (bytes.size_bytes() > 0) batch.write(bytes, to, ignored, SendFlags::none);
  batch.send(message, id, flags | SendFlags::copied);
  return batch.submit();
}

int Transport::post_data(const verbs::LocalSlice& bytes, std::uint32_t to) {
  return post_message(bytes, peer_ring_.slice(to, bytes.size_bytes()),
                      encode(Kind::data, bytes.size_bytes()), reports_.add({.messages = 1}, 0));
}

int Transport::post_piece(const Piece& piece, std::uint32_t may_wait) {
  const Held held{.ring_bytes = piece.bytes, .messages = 1};
  return post_message(send_->region.slice(piece.from, piece.bytes),
                      peer_ring_.slice(piece.to, piece.bytes), encode(Kind::data, piece.bytes),
                      reports_.add(held, may_wait));
}

int Transport::post_control(std::uint32_t word, bool reports) {
  const std::uint32_t may_wait = reports ? 0 : sizes_.send_ring;
  return post_message(no_bytes(), peer_ring_.slice(0, 0), word,
                      reports_.add({.controls = 1}, may_wait));
}

int Transport::post_word(std::uint32_t word) {
  return post_message(no_bytes(), peer_ring_.slice(0, 0), word, reports_.add({.messages = 1}, 0));
}

// `number` is below the peer's rows, so each row has a fixed place behind the ring.
int Transport::post_row(std::uint32_t number, std::span<const std::byte> row) {
  const std::size_t at = sizes_.rows_at + std::size_t{number} * row_bytes;
  std::ranges::copy(row, send_->region.elements().begin() + static_cast<std::ptrdiff_t>(at));
  return post_message(send_->region.slice(at, row_bytes),
                      peer_table_.slice(std::uint64_t{number} * row_bytes, row_bytes),
                      encode(Kind::map, number), reports_.add({.messages = 1}, 0));
}

int Transport::post_write(const verbs::LocalSlice& bytes, const verbs::RemoteSlice& to,
                          const Held& held) {
  return queue_pair_.post_write(bytes, to, RequestId::sent(*reports_.add(held, 0)).encode());
}

// A plain write: the peer's program is not notified, and no receive is used.
int Transport::post_mapped_write(const Piece& piece, const verbs::RemoteSlice& to) {
  return post_write(send_->region.slice(piece.from, piece.bytes), to,
                    {.ring_bytes = piece.bytes, .messages = 1});
}

int Transport::post_report() {
  return post_write(no_bytes(), peer_ring_.slice(0, 0), {.messages = 1});
}

int Transport::post_probe() {
  return queue_pair_.post_write(no_bytes(), peer_ring_.slice(0, 0),
                                RequestId::other(RequestId::Kind::probe).encode());
}

}  // namespace weft::stream::detail
