#include "stream/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/size.h"
#include "stream/ring_map_wire.h"
#include "stream/word_wire.h"

namespace weft::stream::detail {
namespace {

constexpr std::uint32_t probes = 1;
// Rows of the peer's table that are on their way, in a place of their own behind our ring.
constexpr std::uint32_t most_rows = 255;

std::uint8_t variants_of(const Options& options, const verbs::Context& context) {
  switch (options.variant) {
    case Variant::immediate:
      return variant_immediate;
    case Variant::write_and_send:
      return variant_write_and_send;
    case Variant::automatic:
      break;
  }
  // RFC 7306 has immediates for iWARP; adapters do not.
  const bool adapter = context.backend() == verbs::Backend::system &&
                       context.raw()->device->transport_type == IBV_TRANSPORT_IWARP;
  return adapter ? variant_write_and_send : variant_immediate | variant_write_and_send;
}

std::uint32_t sends_of(const Options& options) {
  return options.send_queue + most_control_sends + probes;
}
std::uint32_t receives_of(const Options& options) {
  return options.receive_queue + control_receives;
}

const Options& need_room(const Options& options, const verbs::Context& context) {
  const auto device = context.query();
  const auto most = static_cast<std::uint32_t>(device.max_qp_wr);
  if (sends_of(options) > most) {
    throw Error(EINVAL, fmt::format("send_queue {}: {} has room for {}", options.send_queue,
                                    context.device_name(), most - most_control_sends - probes));
  }
  if (receives_of(options) > most) {
    throw Error(EINVAL, fmt::format("receive_queue {}: {} has room for {}", options.receive_queue,
                                    context.device_name(), most - control_receives));
  }
  return options;
}

ibv_qp_cap capacity(const Options& options) {
  return {.max_send_wr = sends_of(options),
          .max_recv_wr = receives_of(options),
          .max_send_sge = 1,
          .max_recv_sge = 1,
          .max_inline_data = word_bytes};
}

}  // namespace

Wire::Wire(const verbs::Id& id, const Options& options)
    : options_(need_room(options, id.context())),
      variants_(variants_of(options, id.context())),
      domain_(id.context().create_domain()),
      channel_(id.context().create_channel()),
      queue_(id.context().create_completion_queue(
          static_cast<int>(sends_of(options) + receives_of(options)), {.channel = &channel_})),
      send_ring_(
          domain_.allocate<std::byte>(to_size(region_bytes(options.send_buffer_bytes, most_rows)))),
      receive_ring_(domain_.allocate<std::byte>(
          to_size(region_bytes(options.receive_buffer_bytes, options.mapped_buffers)),
          verbs::Access::remote_write)),
      slots_(domain_.allocate<std::byte>(std::size_t{receives_of(options)} * word_bytes)),
      queue_pair_(id.create_queue_pair(domain_, queue_, queue_, capacity(options))) {
  for (std::uint32_t slot = 0; slot < receives_of(options); ++slot) {
    if (const int failed = post_receive(slot)) {
      throw Error(failed, "cannot post the receives of a stream");
    }
  }
}

StreamGreeting Wire::greeting(GreetingType type) const {
  StreamGreeting greeting;
  greeting.type = type;
  greeting.receives = static_cast<std::uint16_t>(options_.receive_queue);
  greeting.ring_address = receive_ring_.remote().address();
  greeting.ring_rkey = receive_ring_.rkey();
  greeting.ring_bytes = options_.receive_buffer_bytes;
  greeting.variants = variants_;
  greeting.rows = static_cast<std::uint8_t>(options_.mapped_buffers);
  return greeting;
}

FlowSizes Wire::connect(const StreamGreeting& peer, std::uint8_t variant) {
  immediate_ = variant == variant_immediate;
  peer_ring_ = {peer.ring_address, peer.ring_bytes, peer.ring_rkey};
  peer_table_ = {peer.ring_address + table_offset(peer.ring_bytes),
                 std::uint64_t{peer.rows} * row_bytes, peer.ring_rkey};
  return {.send_ring_bytes = options_.send_buffer_bytes,
          .sends = immediate_ ? options_.send_queue : options_.send_queue / 2,
          .peer_ring_bytes = peer.ring_bytes,
          .peer_receives = peer.receives,
          .receive_ring_bytes = options_.receive_buffer_bytes,
          .receives = options_.receive_queue};
}

verbs::LocalSlice Wire::slot(std::uint32_t number) const {
  return slots_.slice(std::size_t{number} * word_bytes, word_bytes);
}

std::uint32_t Wire::word_in(std::uint32_t slot) const {
  const auto bytes = slots_.elements().subspan(std::size_t{slot} * word_bytes);
  return word_from_bytes(bytes.first<word_bytes>());
}

std::span<const std::byte> Wire::row(std::uint32_t number) const {
  return receive_ring_.elements().subspan(
      to_size(table_offset(options_.receive_buffer_bytes)) + std::size_t{number} * row_bytes,
      row_bytes);
}

// --- Posting -------------------------------------------------------------------------------------

int Wire::post_receive(std::uint32_t slot_number) {
  return queue_pair_.post_receive(slot(slot_number),
                                  Posted{Posted::What::receive, slot_number}.to_id());
}

int Wire::post_message(const verbs::LocalSlice& bytes, const verbs::RemoteSlice& to,
                       std::uint32_t word, const Posted& posted) {
  using verbs::SendFlags;
  if (immediate_) return queue_pair_.post_write_with_immediate(bytes, to, word, posted.to_id());
  const std::array<std::byte, word_bytes> text = word_to_bytes(word);
  // Copied during the call: no lkey is needed.
  const verbs::LocalSlice said(reinterpret_cast<std::uint64_t>(text.data()), word_bytes, 0);
  auto batch = queue_pair_.batch<2>();
  // The send is not delivered before the write is placed: RFC 5040 §5.5, and InfiniBand has it so.
  if (bytes.size_bytes() > 0) {
    batch.write(bytes, to, Posted{Posted::What::ignored, 0}.to_id(), SendFlags::none);
  }
  batch.send(said, posted.to_id(), SendFlags::signaled | SendFlags::copied);
  return batch.submit();
}

int Wire::post_data(const verbs::LocalSlice& bytes, std::uint32_t to, std::uint32_t held) {
  return post_message(bytes, peer_ring_.slice(to, bytes.size_bytes()),
                      encode(Kind::data, bytes.size_bytes()), {Posted::What::data, held});
}

int Wire::post_control(std::uint32_t word) {
  return post_message(send_ring_.slice(0, 0), peer_ring_.slice(0, 0), word,
                      {Posted::What::control, 0});
}

int Wire::post_row(std::uint32_t number, std::span<const std::byte> row) {
  const std::size_t at =
      to_size(table_offset(options_.send_buffer_bytes)) + std::size_t{number} * row_bytes;
  std::ranges::copy(row, send_ring_.elements().begin() + static_cast<std::ptrdiff_t>(at));
  return post_message(send_ring_.slice(at, row_bytes),
                      peer_table_.slice(std::uint64_t{number} * row_bytes, row_bytes),
                      encode(Kind::map, number), {Posted::What::data, 0});
}

int Wire::post_aside(const Piece& piece, const verbs::RemoteSlice& to) {
  return queue_pair_.post_write(send_ring_.slice(piece.from, piece.bytes), to,
                                Posted{Posted::What::data, piece.bytes}.to_id());
}

int Wire::post_probe() {
  return queue_pair_.post_write(send_ring_.slice(0, 0), peer_ring_.slice(0, 0),
                                Posted{Posted::What::probe, 0}.to_id());
}

}  // namespace weft::stream::detail
