#include "iwarp/deframer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/guarded_memory.h"
#include "wire/mpa.h"

namespace weft::iwarp {
namespace {

// So much is read behind a large FPDU. It takes in what often comes between two large ones: the
// short end of a message, control words, and the next header. If payload of the next large FPDU
// comes with it, that is copied, which takes less time than another system call.
constexpr std::size_t next_bytes = 1024;

// Of a tagged segment without payload.
constexpr std::size_t shortest_fpdu_bytes = wire::fpdu_bytes(wire::DdpTagged::header_bytes);

// How the only segment of a Write or a plain Send begins.
constexpr std::uint16_t write_controls =
    wire::ddp_controls(true, true, wire::rdmap_control(wire::RdmapOpcode::write));
constexpr std::uint16_t send_controls =
    wire::ddp_controls(false, true, wire::rdmap_control(wire::RdmapOpcode::send));

// Messages with up to so much payload are offered to the sink in one step. Of longer ones the copy
// and the CRC take most of the time.
constexpr std::size_t short_payload_bytes = 512;

// Room for the largest FPDU: its length field has 16 bits.
constexpr std::size_t strict_staging_bytes = 128 * 1024;

// They begin with a page, as what the kernel copies from mostly does: see transmitter.cc for what
// the distance between the two decides.
constinit BufferPool buffers(Deframer::staging_bytes);
constinit BufferPool strict_buffers(strict_staging_bytes);

}  // namespace

// Bytes of the buffer are read only after they have arrived, so those of its earlier users do not
// matter.
Deframer::Deframer(const Options& options, SegmentSink& sink)
    : options_(options), sink_(sink), pool_(options.strict ? strict_buffers : buffers) {}

std::size_t Deframer::header_end() const {
  return wire::fpdu_length_bytes + segment_.header_bytes();
}

std::size_t Deframer::trailer_bytes() const {
  return wire::fpdu_pad_bytes(segment_.ulpdu_bytes()) + wire::fpdu_crc_bytes;
}

// A directly placed payload is always longer than what is held back: it did not fit into the
// buffer.
std::uint32_t Deframer::direct_end() const {
  return segment_.payload_bytes - static_cast<std::uint32_t>(held_back_bytes);
}

// Moves the unprocessed bytes to the front, so that a read has the whole rest of the buffer.
void Deframer::compact() {
  if (begin_ == 0) return;
  std::memmove(staging_.get(), staging_.get() + begin_, available());
  end_ -= begin_;
  begin_ = 0;
}

void Deframer::plan(std::vector<iovec>& out) {
  planned_.clear();
  if (phase_ == Phase::refused) return;
  if (!staging_) staging_ = buffer_of(pool_);
  compact();
  // In a stream of large messages a read ends where the next payload begins, so that the payload
  // can be read into its target. Otherwise one read takes as many small FPDUs as there are.
  std::size_t tail = pool_.bytes() - end_;
  // The target first, then the held back end, pad and CRC, and the beginning of the next FPDU: one
  // read takes all of it.
  if (phase_ == Phase::direct) {
    if (placed_ < direct_end() &&
        !sink_.targets(segment_, placed_, direct_end() - placed_, planned_)) {
      phase_ = Phase::refused;
      planned_.clear();
      return;
    }
    tail = held_back_bytes + trailer_bytes() + next_bytes - available();
  } else if (bulk_) {
    const std::size_t rest =
        phase_ == Phase::whole ? wire::fpdu_bytes(segment_.ulpdu_bytes()) - available() : 0;
    tail = std::min(tail, rest + next_bytes);
  }
  planned_.push_back({staging_.get() + end_, tail});
  out.insert(out.end(), planned_.begin(), planned_.end());
}

// Distributes the bytes over the plan: those for the staging buffer are counted there, those that
// were read into target memory are checksummed where they are. Then processes what is complete.
void Deframer::advance(std::size_t bytes) {
  for (const auto& piece : planned_) {
    if (bytes == 0) break;
    const std::size_t landed = std::min(bytes, piece.iov_len);
    // A piece of the plan lies in the staging buffer or in target memory; only the former begins
    // there.
    if (piece.iov_base == staging_.get() + end_) {
      end_ += landed;
    } else {
      if (options_.crc &&
          !checksum_placed({static_cast<const std::byte*>(piece.iov_base), landed})) {
        phase_ = Phase::refused;
        break;
      }
      placed_ += static_cast<std::uint32_t>(landed);
    }
    bytes -= landed;
  }
  planned_.clear();
  bool more = true;
  while (more) {
    switch (phase_) {
      case Phase::header:
        while (short_comes() && take_short()) continue;
        more = parse_header();
        break;
      case Phase::whole:
        more = take_whole();
        break;
      case Phase::direct:
        more = take_direct();
        break;
      case Phase::refused:
        more = false;
        break;
    }
  }
}

// A direct FPDU needs the buffer for its end, even while nothing of that is there.
void Deframer::rest() {
  if (begin_ != end_ || phase_ == Phase::direct) return;
  begin_ = end_ = 0;
  staging_.reset();
}

bool Deframer::target_lost() {
  planned_.clear();
  // Staging memory is the deframer's own, so only a direct FPDU can have lost its target.
  if (phase_ != Phase::direct) return false;
  if (!sink_.lost(segment_)) phase_ = Phase::refused;
  return true;
}

bool Deframer::refuse(wire::TerminateCode code, bool with_segment) {
  phase_ = Phase::refused;
  sink_.fault(code, with_segment ? &segment_ : nullptr);
  return false;
}

// Whether the next FPDU may be the only one of a Write or a plain Send, and not the end of a large
// message.
bool Deframer::short_comes() const {
  if (bulk_ || continued_ || available() < shortest_fpdu_bytes) return false;
  const std::uint16_t controls = wire::load_ddp_controls(at(wire::fpdu_length_bytes));
  return controls == send_controls || controls == write_controls;
}

// Takes it, if it is short and whole and the sink takes it in one step. Otherwise only its CRC is
// known then.
bool Deframer::take_short() {
  const std::size_t ulpdu = wire::load_fpdu_length(at(0));
  const std::size_t total = wire::fpdu_bytes(ulpdu);
  if (ulpdu > wire::DdpUntagged::header_bytes + short_payload_bytes || available() < total) {
    return false;
  }
  if (options_.crc) {
    const std::size_t checked = total - wire::fpdu_crc_bytes;
    checksum_until(checked);
    if (wire::load_fpdu_crc(at(checked)) != crc_.value()) return false;
  }
  const Bytes segment{at(wire::fpdu_length_bytes), ulpdu};
  if (!(wire::ddp_is_tagged(segment[0]) ? offer_write(segment) : offer_send(segment))) return false;
  summed_ = 0;
  consume_fpdu(total);
  return true;
}

// Empty messages name no memory.
bool Deframer::offer_send(Bytes segment) {
  const auto view = wire::UntaggedView::check(segment);
  if (!view || view->queue() != wire::queue::send || view->message_offset() != 0) return false;
  const Bytes payload = view->payload();
  return !payload.empty() && sink_.take_send(view->msn(), payload);
}

bool Deframer::offer_write(Bytes segment) {
  const auto view = wire::TaggedView::check(segment);
  if (!view) return false;
  const Bytes payload = view->payload();
  return !payload.empty() && sink_.take_write(view->stag(), view->tagged_offset(), payload);
}

// Returns whether the state machine can continue without more bytes, as do the take_ functions.
bool Deframer::parse_header() {
  // A segment begins with the control fields of DDP and RDMAP. That of DDP decides how long the
  // header is.
  if (available() < wire::fpdu_length_bytes + 2) return false;
  const std::size_t ulpdu = wire::load_fpdu_length(at(0));
  const std::byte control = *at(wire::fpdu_length_bytes);
  segment_.tagged = wire::ddp_is_tagged(control);
  const std::size_t header = segment_.header_bytes();
  // An ULPDU that cannot hold its own header means that framing is lost (RFC 5044 §8).
  if (ulpdu < header) return refuse(wire::terminate::mpa_marker, false);
  if (available() < header_end()) return false;

  const Bytes raw{at(wire::fpdu_length_bytes), header};
  segment_.payload_bytes = static_cast<std::uint32_t>(ulpdu - header);
  // The header is kept as it arrived: a Terminate must quote it (RFC 5040 §4.8).
  if (segment_.tagged) {
    std::memcpy(segment_.raw_header.data(), raw.data(), wire::DdpTagged::header_bytes);
    // RFC 5041 §7: the only way to fail here is a foreign DDP version.
    const auto parsed = wire::DdpTagged::parse(raw);
    if (!parsed) foreign_version_ = wire::terminate::tagged_version;
    if (parsed) segment_.tagged_header = *parsed;
  } else {
    std::memcpy(segment_.raw_header.data(), raw.data(), wire::DdpUntagged::header_bytes);
    const auto parsed = wire::DdpUntagged::parse(raw);
    if (!parsed) foreign_version_ = wire::terminate::untagged_version;
    if (parsed) segment_.untagged_header = *parsed;
  }
  const auto rdmap = std::to_integer<std::uint8_t>(raw[1]);
  segment_.opcode = wire::rdmap_opcode(rdmap);
  if (!foreign_version_ && wire::rdmap_version_of(rdmap) != wire::rdmap_version) {
    foreign_version_ = wire::terminate::rdma_version;  // RFC 5040 §4.8
  }
  return choose_phase();
}

// Decides whether the FPDU is staged or placed directly; in the latter case places what is staged
// of it already.
bool Deframer::choose_phase() {
  const bool fits = wire::fpdu_bytes(segment_.ulpdu_bytes()) <= pool_.bytes();
  phase_ = fits ? Phase::whole : Phase::direct;
  // A large FPDU is placed before its CRC is known, so its header must be valid by itself. That of
  // a small one is examined after its CRC. A control message is never that large.
  if (fits) return true;
  if (foreign_version_) return refuse(*foreign_version_, true);
  // The CRC is checked only when the FPDU is complete. What is placed until then is in memory that
  // the peer may write to; nothing completes.
  course_ = sink_.begin(segment_);
  if (course_ == SegmentSink::Course::refuse) {
    phase_ = Phase::refused;
    return false;
  }
  if (course_ == SegmentSink::Course::control) {
    return refuse(wire::terminate::untagged_too_long, true);
  }
  bulk_ = true;
  // The CRC covers the length field, the header, the payload and the pad (RFC 5044 §4.4), so it
  // begins with the staged head.
  crc_ = Crc32c();
  placed_ = 0;
  const auto present =
      static_cast<std::uint32_t>(std::min<std::size_t>(available() - header_end(), direct_end()));
  if (options_.crc) crc_.update({at(0), header_end() + present});
  if (!copy_out(0, {at(header_end()), present})) return false;
  placed_ = present;
  begin_ += header_end() + present;
  return true;
}

// Copies staged payload to the memory that the sink names.
bool Deframer::copy_out(std::uint32_t offset, Bytes payload) {
  if (payload.empty()) return true;
  scratch_.clear();
  if (!sink_.targets(segment_, offset, static_cast<std::uint32_t>(payload.size()), scratch_)) {
    phase_ = Phase::refused;
    return false;
  }
  for (const auto& target : scratch_) {
    if (!guarded_store(target.iov_base, payload.data(), target.iov_len)) {
      // The segment's message has failed, and the rest of it is discarded.
      if (sink_.lost(segment_)) return true;
      phase_ = Phase::refused;
      return false;
    }
    payload = payload.subspan(target.iov_len);
  }
  return true;
}

// Adds bytes that were read into target memory to the CRC. They are copied first, in pieces that
// stay in the cache, because the checksum's own instructions must not access memory that was
// unmapped.
bool Deframer::checksum_placed(Bytes placed) {
  std::array<std::byte, 4096> copy;
  while (!placed.empty()) {
    const Bytes piece = placed.first(std::min(placed.size(), copy.size()));
    if (!guarded_load(copy.data(), piece.data(), piece.size())) {
      // The CRC cannot be computed, so the stream cannot continue either.
      if (sink_.lost(segment_)) sink_.fault(wire::terminate::mpa_crc, nullptr);
      return false;
    }
    crc_.update(Bytes(copy).first(piece.size()));
    placed = placed.subspan(piece.size());
  }
  return true;
}

// The bytes of a staged FPDU that are there, while TCP still carries the rest: of a large one the
// CRC is nearly computed when its last byte arrives. Small ones mostly arrive at once.
void Deframer::checksum_staged(std::size_t present) {
  constexpr std::size_t least_bytes = 4096;
  if (present >= summed_ + least_bytes) checksum_until(present);
}

void Deframer::checksum_until(std::size_t end) {
  if (summed_ == 0) crc_ = Crc32c();
  crc_.update({at(summed_), end - summed_});
  summed_ = end;
}

std::uint32_t Deframer::whole_crc(std::size_t bytes) {
  if (summed_ == 0) return crc32c({at(0), bytes});
  crc_.update({at(summed_), bytes - summed_});
  summed_ = 0;
  return crc_.value();
}

bool Deframer::check_crc(const std::byte* stored, std::uint32_t computed) {
  if (!options_.crc || wire::load_fpdu_crc(stored) == computed) return true;
  return refuse(wire::terminate::mpa_crc, false);  // RFC 5044 §4.4, §8
}

// The buffer is rewound when it is empty, which spares the next plan a move of bytes.
void Deframer::consume_fpdu(std::size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) begin_ = end_ = 0;
  ++fpdus_;
}

void Deframer::finish_fpdu(std::size_t consumed) {
  consume_fpdu(consumed);
  if (course_ == SegmentSink::Course::place) continued_ = !segment_.last();
  phase_ = Phase::header;
}

bool Deframer::take_whole() {
  const std::size_t total = wire::fpdu_bytes(segment_.ulpdu_bytes());
  const std::size_t checked = total - wire::fpdu_crc_bytes;
  if (available() < total) {
    if (options_.crc) checksum_staged(std::min(available(), checked));
    return false;
  }
  // Before the segment is examined, its version as well: a damaged header must be reported as a CRC
  // error.
  if (options_.crc && !check_crc(at(checked), whole_crc(checked))) return false;

  if (foreign_version_) return refuse(*foreign_version_, true);

  const Bytes payload{at(header_end()), segment_.payload_bytes};
  course_ = sink_.begin(segment_);
  // A small message ends the expectation of large ones. The short last segment of a large message
  // does not, nor does a control message.
  if (course_ == SegmentSink::Course::place && !continued_) bulk_ = false;
  bool taken = false;
  if (course_ == SegmentSink::Course::control) {
    taken = sink_.control(segment_, payload);
  } else if (course_ == SegmentSink::Course::place) {
    taken = copy_out(0, payload) && sink_.deliver(segment_);
  }
  if (!taken) {
    phase_ = Phase::refused;
    return false;
  }
  finish_fpdu(total);
  return true;
}

// The FPDU is complete when its target is filled and its end is staged. The held back bytes are
// placed only if the CRC of the whole FPDU is correct.
bool Deframer::take_direct() {
  // The staging buffer begins with the held back bytes here, since the head was taken off by
  // choose_phase().
  const std::size_t rest = held_back_bytes + trailer_bytes();
  if (placed_ < direct_end() || available() < rest) return false;
  if (options_.crc) {
    const std::size_t checked = rest - wire::fpdu_crc_bytes;
    crc_.update({at(0), checked});
    if (!check_crc(at(checked), crc_.value())) return false;
  }
  if (!copy_out(direct_end(), {at(0), held_back_bytes}) || !sink_.deliver(segment_)) {
    phase_ = Phase::refused;
    return false;
  }
  finish_fpdu(rest);
  return true;
}

}  // namespace weft::iwarp
