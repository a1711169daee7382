#include "capture/iwarp/mpa_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/markers.h"

namespace weft::capture {
namespace {

// RFC 5044 §4.2: the shortest DDP segment is a tagged header without payload.
constexpr std::size_t min_ulpdu_bytes = wire::DdpTagged::header_bytes;

// The largest number of bytes up to the end of the length field: a marker may precede it.
constexpr std::size_t length_field_end = wire::marker_bytes + wire::fpdu_length_bytes;

// Returns whether `bytes` can be the beginning of an MPA request or reply frame.
bool is_prefix_of_frame(Bytes bytes) {
  constexpr std::string_view common = "MPA ID Re";
  const std::size_t length = std::min(bytes.size(), common.size());
  if (std::memcmp(bytes.data(), common.data(), length) != 0) return false;
  if (bytes.size() <= common.size()) return true;
  const auto letter = std::to_integer<char>(bytes[common.size()]);
  return letter == 'q' || letter == 'p';
}

bool covers_any(std::span<const MissingRange> missing, std::size_t begin, std::size_t end) {
  return std::ranges::any_of(
      missing, [&](const MissingRange& range) { return range.begin < end && range.end > begin; });
}

// Appends the ranges of `missing` that lie in `bytes` bytes from `from` on, moved so that `from`
// becomes `to`.
void add_shifted(std::span<const MissingRange> missing, std::size_t from, std::size_t bytes,
                 std::size_t to, std::vector<MissingRange>& out) {
  for (const MissingRange& range : missing) {
    const std::size_t begin = std::max(range.begin, from);
    const std::size_t end = std::min(range.end, from + bytes);
    if (begin < end) out.push_back({to + begin - from, to + end - from, range.cut});
  }
}

std::uint32_t crc_field_of(Bytes plain) {
  return wire::load_fpdu_crc(&plain[plain.size() - wire::fpdu_crc_bytes]);
}

bool has_possible_header(Bytes plain) {
  return wire::load_fpdu_length(plain.data()) >= min_ulpdu_bytes &&
         wire::ddp_version_of(plain[wire::fpdu_length_bytes]) == wire::ddp_version;
}

}  // namespace

void MpaReader::start(bool from_the_start) {
  from_the_start_ = from_the_start;
}

void MpaReader::on_bytes(const Stamp& stamp, std::uint64_t position, Bytes bytes) {
  switch (mode_) {
    case Mode::fpdus:
      return read_fpdus(stamp, position, bytes);
    case Mode::handshake:
      return read_handshake(stamp, position, bytes);
    case Mode::searching:
      return search(stamp, position, bytes);
    case Mode::not_mpa:
      return;
  }
}

// Handles bytes that are missing. A search first tries what is in its window, and may change the
// mode, so the mode is tested again after it.
void MpaReader::on_hole(const Stamp& stamp, const Hole& hole) {
  if (mode_ == Mode::searching) try_search(Occasion::hole);
  if (mode_ == Mode::not_mpa) return;
  settle_unsettled();
  if (mode_ == Mode::searching) drop_window(buffer_.size());
  if (mode_ == Mode::handshake && hole.cut) {
    if (const std::size_t filled = complete_cut_frame(stamp, hole); filled > 0) {
      if (filled < hole.bytes) on_hole(stamp, {hole.bytes - filled, true});
      return;
    }
  }
  const std::size_t wanted = mode_ == Mode::fpdus ? wanted_bytes() : 0;
  // Inside an FPDU of known length the missing bytes have a place in the buffer. Otherwise the next
  // FPDU has to be searched.
  std::uint64_t filled = 0;
  if (wanted > length_field_end && !buffer_.empty()) {
    filled = std::min<std::uint64_t>(wanted - buffer_.size(), hole.bytes);
    if (!hole.cut) events_.on_lost(stamp, {filled, false});
    fill_missing(stamp, {filled, hole.cut});
    if (buffer_.size() == wanted) complete();
  }
  if (filled == hole.bytes) return;
  if (!buffer_.empty()) events_.on_lost(stamp, {buffer_.size(), hole.cut});
  events_.on_lost(stamp, {hole.bytes - filled, hole.cut});
  if (mode_ != Mode::searching) begin_search(hole.cut);
}

// Puts zeros for the missing bytes into the buffer, and notes the range.
void MpaReader::fill_missing(const Stamp& stamp, const Hole& hole) {
  const std::size_t end = buffer_.size() + static_cast<std::size_t>(hole.bytes);
  missing_.push_back({buffer_.size(), end, hole.cut});
  buffer_.resize(end);
  if (stamp.frame > buffer_stamp_.frame) buffer_stamp_ = stamp;
}

// Ends the stream. An incomplete FPDU at its end is reported as lost.
void MpaReader::finish(const Stamp& stamp, bool broken_off) {
  if (mode_ == Mode::searching) try_search(Occasion::end);
  settle_unsettled();
  // What the other direction shows to be MPA is lost if no FPDU was recognised in it.
  const bool is_mpa = ever_found_ || (mode_ == Mode::searching && events_.on_unknown_start());
  if (mode_ == Mode::not_mpa || !is_mpa) return release();
  const bool expected = broken_off && mode_ == Mode::fpdus && missing_.empty();
  if (!buffer_.empty() && !expected) events_.on_lost(stamp, {buffer_.size(), after_cut_});
  release();
}

void MpaReader::give_up() {
  mode_ = Mode::not_mpa;
  release();
}

void MpaReader::release() {
  buffer_ = {};
  missing_ = {};
  marks_ = {};
  plain_ = {};
  budget_.give_back(budgeted_);
  budgeted_ = 0;
}

// --- Handshake -----------------------------------------------------------------------------------

// Collects the request or reply frame. If the stream begins with something else, FPDUs are searched
// if the connection is known to be MPA or its beginning was not captured.
void MpaReader::read_handshake(const Stamp& stamp, std::uint64_t position, Bytes bytes) {
  if (buffer_.empty()) buffer_position_ = position;
  const std::size_t had = buffer_.size();
  // The buffer never holds more than the longest frame, whatever the stream contains.
  const std::size_t room = wire::MpaFrame::header_bytes + wire::MpaFrame::max_private_data_bytes;
  const Bytes part = bytes.first(std::min(bytes.size(), room - had));
  buffer_.insert(buffer_.end(), part.begin(), part.end());

  const auto frame = wire::MpaFrameView::check(buffer_);
  if (frame) {
    ever_found_ = true;
    mode_ = Mode::fpdus;
    const std::size_t taken = frame->size() - had;
    has_base_ = true;
    base_ = position + taken;
    events_.on_frame(stamp, *frame, 0);
    buffer_.clear();
    if (mode_ == Mode::fpdus && taken < bytes.size()) {
      read_fpdus(stamp, position + taken, bytes.subspan(taken));
    }
    return;
  }
  if (frame.error() == wire::WireError::truncated && is_prefix_of_frame(buffer_)) return;
  if (from_the_start_ && !events_.on_unknown_start()) return give_up();
  begin_search();
  search(stamp, position, bytes);
}

// The fixed part has the length of the whole frame, and what both sides need for framing.
std::size_t MpaReader::complete_cut_frame(const Stamp& stamp, const Hole& hole) {
  const auto fixed = wire::MpaFrame::parse(buffer_);
  if (!fixed) return 0;
  const std::size_t size = wire::MpaFrame::header_bytes + fixed->private_data_bytes;
  const std::size_t cut_bytes = size - buffer_.size();
  if (cut_bytes > hole.bytes) return 0;
  ever_found_ = true;
  mode_ = Mode::fpdus;
  has_base_ = true;
  base_ = buffer_position_ + size;
  // Zeros take the place of the private data that was cut; `cut_bytes` lets the event leave them
  // out.
  buffer_.resize(size);
  events_.on_frame(stamp, *wire::MpaFrameView::check(buffer_), cut_bytes);
  buffer_.clear();
  return cut_bytes;
}

// --- FPDUs ---------------------------------------------------------------------------------------

void MpaReader::read_fpdus(const Stamp& stamp, std::uint64_t position, Bytes bytes) {
  // The frame with the marker setting was not captured, so the setting must be found out.
  if (settings_.markers == Markers::unknown) begin_search();
  while (!bytes.empty()) {
    if (mode_ != Mode::fpdus) return on_bytes(stamp, position, bytes);
    std::size_t taken = 0;
    // The common case: the FPDU is complete, and it is read without a copy.
    if (buffer_.empty() && settings_.markers == Markers::off &&
        bytes.size() >= wire::fpdu_length_bytes) {
      const std::size_t size = wire::fpdu_bytes(wire::load_fpdu_length(bytes.data()));
      if (size <= bytes.size()) {
        taken = size;
        take(stamp, position + size, bytes.first(size), {});
      }
    }
    if (taken == 0) taken = collect(stamp, position, bytes);
    position += taken;
    bytes = bytes.subspan(taken);
  }
}

// Returns the stream length of the FPDU at the beginning of the buffer, or, while its length field
// is incomplete, the bytes up to the end of that field.
std::size_t MpaReader::wanted_bytes() const {
  std::size_t skip = 0;
  if (settings_.markers == Markers::on && wire::bytes_to_marker(buffer_position_ - base_) == 0) {
    skip = wire::marker_bytes;
  }
  if (buffer_.size() < skip + wire::fpdu_length_bytes) return skip + wire::fpdu_length_bytes;
  const std::size_t plain = wire::fpdu_bytes(wire::load_fpdu_length(&buffer_[skip]));
  if (settings_.markers == Markers::off) return plain;
  return wire::marked_bytes(buffer_position_ - base_, plain);
}

// Appends to the FPDU in the buffer, first up to its length field and then up to its end.
std::size_t MpaReader::collect(const Stamp& stamp, std::uint64_t position, Bytes bytes) {
  if (buffer_.empty()) {
    buffer_position_ = position;
    buffer_stamp_ = stamp;
  }
  if (stamp.frame > buffer_stamp_.frame) buffer_stamp_ = stamp;
  std::size_t taken = 0;
  while (taken < bytes.size()) {
    const std::size_t wanted = wanted_bytes();
    const std::size_t part = std::min(wanted - buffer_.size(), bytes.size() - taken);
    const Bytes piece = bytes.subspan(taken, part);
    buffer_.insert(buffer_.end(), piece.begin(), piece.end());
    taken += part;
    // With the length field complete, wanted_bytes() grows to the end of the FPDU, and the loop
    // goes on.
    if (buffer_.size() == wanted && wanted_bytes() == wanted) {
      complete();
      break;
    }
  }
  return taken;
}

void MpaReader::complete() {
  // The events may use the buffer again, so its content is moved out first.
  std::vector<std::byte> raw = std::move(buffer_);
  std::vector<MissingRange> missing = std::move(missing_);
  const std::uint64_t end = buffer_position_ + raw.size();
  buffer_.clear();
  missing_.clear();
  take(buffer_stamp_, end, raw, missing);
  if (buffer_.empty() && mode_ == Mode::fpdus) {
    raw.clear();
    missing.clear();
    buffer_ = std::move(raw);  // keeps the memory
    missing_ = std::move(missing);
  }
}

void MpaReader::take(const Stamp& stamp, std::uint64_t position, Bytes raw,
                     std::span<const MissingRange> missing) {
  if (settings_.markers == Markers::on) return take_marked(stamp, position, raw, missing);
  const bool check = missing.empty() && settings_.crc != Crc::off;
  take_plain(stamp, position, raw, missing, check && wire::fpdu_crc_good(raw));
}

// Removes the markers of an FPDU and checks their pointers (RFC 5044 §4.3). The CRC covers the
// markers, so it is checked on the raw bytes.
void MpaReader::take_marked(const Stamp& stamp, std::uint64_t position, Bytes raw,
                            std::span<const MissingRange> missing) {
  const std::uint64_t begin = position - raw.size() - base_;
  const std::size_t skip = wire::bytes_to_marker(begin) == 0 ? wire::marker_bytes : 0;
  plain_.resize(wire::fpdu_bytes(wire::load_fpdu_length(&raw[skip])));
  std::vector<MissingRange> plain_missing;
  wire::MarkedPieces pieces(begin, plain_.size());
  std::size_t at = 0;
  while (const auto piece = pieces.next()) {
    if (piece->has_marker) {
      const auto marker = wire::Marker::parse(raw.subspan(at));
      const bool there = !covers_any(missing, at, at + wire::marker_bytes);
      if (there && *marker != piece->marker) {
        events_.on_violation(stamp, {.kind = Violation::Kind::bad_marker,
                                     .found = marker->fpdu_pointer,
                                     .expected = piece->marker.fpdu_pointer});
      }
      at += wire::marker_bytes;
    }
    std::ranges::copy(raw.subspan(at, piece->plain_bytes),
                      plain_.begin() + static_cast<std::ptrdiff_t>(piece->plain_offset));
    add_shifted(missing, at, piece->plain_bytes, piece->plain_offset, plain_missing);
    at += piece->plain_bytes;
  }
  const bool check = missing.empty() && settings_.crc != Crc::off;
  take_plain(stamp, position, plain_, plain_missing, check && wire::fpdu_crc_good(raw));
}

// Decides by the CRC whether an FPDU may be used (RFC 5044 §4.4: one with a wrong CRC must not be).
// While it is unknown whether the stream has CRCs, one correct CRC turns checking on, and two wrong
// ones turn it off.
void MpaReader::take_plain(const Stamp& stamp, std::uint64_t position, Bytes plain,
                           std::span<const MissingRange> missing, bool crc_good) {
  if (crc_good) settings_.crc = Crc::on;
  const bool wrong = !crc_good && missing.empty() && settings_.crc != Crc::off;
  if (!wrong) {
    settle_unsettled();
    if (crc_good) refused_before_ = false;
    return use(stamp, position, plain, missing, crc_good);
  }
  if (settings_.crc == Crc::on) return refuse(stamp, plain);
  const bool first = !std::exchange(crc_was_wrong_, true);
  if (first && crc_field_of(plain) != 0 && has_possible_header(plain)) {
    unsettled_ = {stamp, position, {plain.begin(), plain.end()}};
    return;
  }
  if (!first) {
    settings_.crc = Crc::off;
    settle_unsettled();
  }
  use(stamp, position, plain, missing, crc_good);
}

// The FPDU that waited for the decision. It came before the one that is taken now.
void MpaReader::settle_unsettled() {
  if (!unsettled_) return;
  const Unsettled first = std::move(*unsettled_);
  unsettled_.reset();
  if (settings_.crc == Crc::on) return refuse(first.stamp, first.plain);
  use(first.stamp, first.position, first.plain, {}, false);
}

// The length of a refused FPDU may be wrong as well, so the next one is searched, beginning with
// the place where it should be. A search by markers would leave out FPDUs without one, so it begins
// only when two in a row are refused.
void MpaReader::refuse(const Stamp& stamp, Bytes plain) {
  const auto covered = plain.first(plain.size() - wire::fpdu_crc_bytes);
  events_.on_violation(stamp, {.kind = Violation::Kind::bad_checksum,
                               .found = crc_field_of(plain),
                               .expected = crc32c(covered)});
  events_.on_lost(stamp, {plain.size(), false});
  const bool again = std::exchange(refused_before_, true);
  if (again || settings_.markers == Markers::off) begin_search();
}

// Passes an FPDU on whose CRC is correct, or is not checked.
void MpaReader::use(const Stamp& stamp, std::uint64_t position, Bytes plain,
                    std::span<const MissingRange> missing, bool crc_good) {
  const std::uint16_t ulpdu_bytes = wire::load_fpdu_length(plain.data());
  if (ulpdu_bytes == 0) return;  // RFC 6581 §5.1: an empty ready-to-receive message
  const bool header_there = missing.empty() || missing.front().begin > wire::fpdu_length_bytes;
  const std::uint8_t version = wire::ddp_version_of(plain[wire::fpdu_length_bytes]);
  const bool too_short = ulpdu_bytes < min_ulpdu_bytes;
  const bool other_version = header_there && version != wire::ddp_version && !crc_good;
  if (!too_short && !other_version) return pass_on(stamp, position, plain, missing);
  // Behind a refused FPDU the boundaries may be lost already, so this header proves nothing.
  if (too_short && !refused_before_) {
    // It has no complete header, so it is not passed on, not even with a correct CRC.
    events_.on_violation(
        stamp,
        {.kind = Violation::Kind::bad_header, .found = ulpdu_bytes, .expected = min_ulpdu_bytes});
  } else if (!refused_before_) {
    events_.on_violation(stamp, {.kind = Violation::Kind::bad_version, .found = version});
  }
  if (crc_good) return;
  // An impossible header without a CRC means that the reader lost the FPDU boundaries.
  events_.on_lost(stamp, {plain.size(), false});
  begin_search();
}

void MpaReader::pass_on(const Stamp& stamp, std::uint64_t position, Bytes plain,
                        std::span<const MissingRange> missing) {
  const std::uint16_t ulpdu_bytes = wire::load_fpdu_length(plain.data());
  std::vector<MissingRange> of_ulpdu;
  add_shifted(missing, wire::fpdu_length_bytes, ulpdu_bytes, 0, of_ulpdu);
  events_.on_fpdu({.stamp = stamp,
                   .position = position,
                   .ulpdu = plain.subspan(wire::fpdu_length_bytes, ulpdu_bytes),
                   .missing = of_ulpdu});
}

}  // namespace weft::capture
