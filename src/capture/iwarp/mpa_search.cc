// The part of MpaReader that searches the next FPDU when its position is unknown.
#include <algorithm>
#include <optional>

#include "capture/iwarp/mpa_reader.h"

namespace weft::capture {
namespace {

// Three of the longest FPDUs: enough to verify that each one leads to the next.
constexpr std::size_t window_bytes = 192 * 1024;
// Small windows are searched with each segment, larger ones when they have grown by a quarter, or,
// if they are full, moved on by a fifth. Otherwise the same candidates would be tested too often.
// What leaves a full window was still tested with more than two of the longest FPDUs behind it.
constexpr std::size_t small_window_bytes = 8 * 1024;

// Evidence for a candidate at the beginning of a segment, if the connection is known to be MPA.
constexpr unsigned resume_threshold_bits = 30;
// The same if nothing more will come that could decide.
constexpr unsigned last_threshold_bits = 20;

}  // namespace

void MpaReader::begin_search(bool after_cut) {
  mode_ = Mode::searching;
  after_cut_ = after_cut;
  search_.reset();
  searched_bytes_ = 0;
  unrecognised_bytes_ = 0;
  buffer_.clear();
  missing_.clear();
  marks_.clear();
}

// Appends bytes to the window and searches it. A search that has found FPDUs passes the rest of the
// bytes on to them.
void MpaReader::search(const Stamp& stamp, std::uint64_t position, Bytes bytes) {
  if (buffer_.empty()) buffer_position_ = position;
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), window_bytes));
    const std::size_t needed = std::min(buffer_.size() + part.size(), window_bytes);
    // Only connections that are not known to be MPA yet need the budget, which they share.
    if (needed > budgeted_ && !ever_found_) {
      if (!budget_.take(needed - budgeted_)) return give_up();
      budgeted_ = needed;
    }
    if (buffer_.size() + part.size() > window_bytes) {
      drop_window(buffer_.size() + part.size() - window_bytes);
    }
    marks_.push_back({buffer_.size(), stamp});
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    position += part.size();
    try_search(Occasion::growth);
    if (mode_ != Mode::searching) {
      if (!bytes.empty()) on_bytes(stamp, position, bytes);
      return;
    }
  }
}

// Removes bytes from the beginning of the window, and reports them as lost.
void MpaReader::drop_window(std::size_t bytes) {
  if (bytes == 0) return;
  const Stamp stamp = marks_.empty() ? Stamp{} : marks_.front().stamp;
  events_.on_lost(stamp, {bytes, after_cut_});
  unrecognised_bytes_ += bytes;
  search_.skip(bytes);
  searched_bytes_ -= std::min(searched_bytes_, bytes);
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(bytes));
  buffer_position_ += bytes;
  std::size_t first = 0;
  for (auto& mark : marks_) {
    if (mark.offset <= bytes) ++first;
    mark.offset -= std::min(mark.offset, bytes);
  }
  // Of the marks at the new beginning the last one is valid.
  if (first > 1)
    marks_.erase(marks_.begin(), marks_.begin() + static_cast<std::ptrdiff_t>(first - 1));
  if (buffer_.empty()) marks_.clear();
  if (!ever_found_ && unrecognised_bytes_ > max_search_bytes) give_up();
}

void MpaReader::try_search(Occasion occasion) {
  if (buffer_.empty()) return;
  const bool grown = buffer_.size() <= small_window_bytes ||
                     buffer_.size() >= searched_bytes_ + searched_bytes_ / 4;
  if (!grown && occasion == Occasion::growth) return;
  searched_bytes_ = buffer_.size();
  if (const auto start = find_start(occasion)) found(*start);
}

// Chooses the kind of search by what is known about markers and CRCs.
std::optional<FpduStart> MpaReader::find_start(Occasion occasion) {
  if (settings_.markers == Markers::on && has_base_) return find_by_marker();
  FpduExpectation expected = events_.expectation();
  if (settings_.markers != Markers::off) {
    if (const auto marked = find_marked_fpdu(buffer_, expected)) {
      settings_.markers = Markers::on;
      has_base_ = true;
      base_ = buffer_position_ + marked->marker;
      return marked->start;
    }
    // The position of the next marker is unknown. A marker that is read as data would shift
    // everything after it.
    if (settings_.markers == Markers::on) return std::nullopt;
    // Two small FPDUs look the same with and without markers, so a longer sequence is needed.
    if (occasion != Occasion::end) expected.least_bytes = wire::marker_interval_bytes;
  }
  // FPDUs begin at multiples of four, counted from the first one, because each one is padded.
  if (has_base_) {
    expected.alignment = 4;
    expected.phase = static_cast<std::size_t>((buffer_position_ - base_) % 4);
  }
  if (ever_found_) {
    expected.first_threshold_bits =
        occasion == Occasion::growth ? resume_threshold_bits : last_threshold_bits;
  }
  if (occasion != Occasion::growth) search_.reset();
  const auto start = search_.find(buffer_, expected, true);
  if (start) settings_.markers = Markers::off;
  return start;
}

// RFC 5044 §4.3: markers exist for this purpose. The first marker of an FPDU that begins in the
// window gives the position.
std::optional<FpduStart> MpaReader::find_by_marker() const {
  std::size_t at = wire::bytes_to_marker(buffer_position_ - base_);
  for (; at + wire::marker_bytes <= buffer_.size(); at += wire::marker_interval_bytes) {
    const auto marker = wire::Marker::parse(Bytes(buffer_).subspan(at));
    const std::size_t back = marker->fpdu_pointer;
    if (back > at) continue;
    return FpduStart{.offset = at - back, .crc_good = false};
  }
  return std::nullopt;
}

// Continues with reading FPDUs at the position found, with the bytes in the window. Each part keeps
// the stamp of its frame.
void MpaReader::found(const FpduStart& start) {
  // The calls of on_bytes() below may begin a new search and fill the buffer again, so the window
  // and its marks are moved out first.
  const std::vector<std::byte> window = std::move(buffer_);
  const std::vector<Mark> marks = std::move(marks_);
  const std::uint64_t window_position = buffer_position_;
  const bool after_cut = after_cut_;
  release();
  begin_search();
  mode_ = Mode::fpdus;
  if (!has_base_) {
    has_base_ = true;
    base_ = window_position + start.offset;
  }
  const auto stamp_at = [&](std::size_t offset) {
    Stamp stamp = marks.front().stamp;
    for (const Mark& mark : marks) {
      if (mark.offset <= offset) stamp = mark.stamp;
    }
    return stamp;
  };
  if (!ever_found_) events_.on_found(start.crc_good);
  ever_found_ = true;
  if (start.crc_good && settings_.crc == Crc::unknown) settings_.crc = Crc::on;
  if (start.offset > 0) events_.on_lost(stamp_at(0), {start.offset, after_cut});
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const std::size_t begin = std::max(marks[i].offset, start.offset);
    const std::size_t end = i + 1 < marks.size() ? marks[i + 1].offset : window.size();
    if (begin >= end) continue;
    on_bytes(marks[i].stamp, window_position + begin, Bytes(window).subspan(begin, end - begin));
  }
}

}  // namespace weft::capture
