// Reads one direction of an MPA stream (RFC 5044): the request or reply frame, then FPDUs. It
// removes markers and checks CRCs. After missing bytes it searches the next FPDU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "capture/iwarp/fpdu_search.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/tcp_stream.hpp"
#include "weft/capture/traffic.hpp"
#include "wire/mpa.h"

namespace weft::capture {

// A range of a buffer that stands for bytes that are not in the capture.
struct MissingRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool cut = false;  // by the snap length
};

struct Fpdu {
  Stamp stamp;                 // the latest frame with a part of it
  std::uint64_t position = 0;  // stream position of the first byte after it
  Bytes ulpdu;
  std::span<const MissingRange> missing;  // ranges in `ulpdu`; usually empty
};

class MpaEvents {
 public:
  virtual ~MpaEvents() = default;
  // The stream begins with a request or reply frame, or an iSER session changes to MPA with one.
  // Private data is valid during the call only. The snap length cut its last `cut_bytes`, which are
  // zeros in the frame.
  virtual void on_frame(const Stamp& stamp, const wire::MpaFrameView& frame,
                        std::size_t cut_bytes) = 0;
  // The stream begins with something else. Return true to search for FPDUs nevertheless.
  virtual bool on_unknown_start() = 0;
  // FPDUs were found in the middle of the stream.
  virtual void on_found(bool crc_good) = 0;
  virtual void on_fpdu(const Fpdu& fpdu) = 0;
  // Bytes are missing, or cannot be decoded because others are missing. Bytes of an FPDU that the
  // snap length cut are not reported: they are `missing` in it.
  virtual void on_lost(const Stamp& stamp, const Hole& hole) = 0;
  virtual void on_violation(const Stamp& stamp, const Violation& violation) = 0;
  // Returns what is known about the stream, for a search.
  [[nodiscard]] virtual FpduExpectation expectation() const = 0;
};

class MpaReader {
 public:
  enum class Crc : std::uint8_t { unknown, on, off };
  enum class Markers : std::uint8_t { unknown, on, off };
  // Settings from the handshake, or derived from the traffic.
  struct Settings {
    Crc crc = Crc::unknown;
    Markers markers = Markers::unknown;  // in this direction
  };

  // Bytes of a stream without recognised FPDUs after which the search is given up.
  static constexpr std::uint64_t max_search_bytes = 1024 * 1024;

  MpaReader(MpaEvents& events, Budget& budget) : events_(events), budget_(budget) {}
  MpaReader(const MpaReader&) = delete;
  MpaReader& operator=(const MpaReader&) = delete;
  ~MpaReader() { release(); }

  // Call it before the first byte. `from_the_start`: that byte is the stream's first.
  void start(bool from_the_start);
  void set_crc(Crc crc) { settings_.crc = crc; }
  void set_markers(Markers markers) { settings_.markers = markers; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  void on_bytes(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  void on_hole(const Stamp& stamp, const Hole& hole);
  // Ends the input. `broken_off`: the connection did not end in order, so that the rest of the last
  // FPDU never was on the wire. Otherwise that FPDU is lost.
  void finish(const Stamp& stamp, bool broken_off = false);

  // Returns true if the stream seems not to be MPA; the reader ignores further bytes.
  [[nodiscard]] bool gave_up() const { return mode_ == Mode::not_mpa; }
  void give_up();

 private:
  enum class Mode : std::uint8_t { handshake, fpdus, searching, not_mpa };
  struct Unsettled {
    Stamp stamp;
    std::uint64_t position = 0;
    std::vector<std::byte> plain;
  };
  struct Mark {
    std::size_t offset;  // position in the buffer
    Stamp stamp;         // the frame with the bytes that begin there
  };

  void read_handshake(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  // Completes a frame of which the snap length cut private data. Returns how many bytes of the hole
  // belong to it; 0 if its fixed part was cut as well.
  [[nodiscard]] std::size_t complete_cut_frame(const Stamp& stamp, const Hole& hole);
  void read_fpdus(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  // Appends bytes to the FPDU in the buffer, and returns how many it used.
  [[nodiscard]] std::size_t collect(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  // Returns the stream bytes of the FPDU in the buffer, or those up to its length field.
  [[nodiscard]] std::size_t wanted_bytes() const;
  // Fills the place of bytes that will not come.
  void fill_missing(const Stamp& stamp, const Hole& hole);
  void complete();
  // Handle an FPDU in its form on the stream; it ends at `position`.
  void take(const Stamp& stamp, std::uint64_t position, Bytes raw,
            std::span<const MissingRange> missing);
  void take_marked(const Stamp& stamp, std::uint64_t position, Bytes raw,
                   std::span<const MissingRange> missing);
  void take_plain(const Stamp& stamp, std::uint64_t position, Bytes plain,
                  std::span<const MissingRange> missing, bool crc_good);
  void pass_on(const Stamp& stamp, std::uint64_t position, Bytes plain,
               std::span<const MissingRange> missing);
  void settle_unsettled();
  void refuse(const Stamp& stamp, Bytes plain);
  void use(const Stamp& stamp, std::uint64_t position, Bytes plain,
           std::span<const MissingRange> missing, bool crc_good);

  // Why the window is searched: it has grown, or it will not grow, because bytes after it are
  // missing or the stream has ended.
  enum class Occasion : std::uint8_t { growth, hole, end };
  void search(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  void try_search(Occasion occasion);
  [[nodiscard]] std::optional<FpduStart> find_start(Occasion occasion);
  [[nodiscard]] std::optional<FpduStart> find_by_marker() const;
  void found(const FpduStart& start);
  void drop_window(std::size_t bytes);
  void begin_search(bool after_cut = false);
  void release();

  MpaEvents& events_;
  Budget& budget_;
  Settings settings_;
  Mode mode_ = Mode::handshake;
  bool from_the_start_ = false;
  // Mode fpdus: an incomplete FPDU. Mode searching: the window. Mode handshake: a part of the
  // frame.
  std::vector<std::byte> buffer_;
  std::uint64_t buffer_position_ = 0;  // stream position of its first byte
  std::vector<MissingRange> missing_;  // ranges in the buffer
  Stamp buffer_stamp_;                 // the latest frame in the buffer
  std::vector<Mark> marks_;            // while searching: the frame of each part of the window
  std::vector<std::byte> plain_;       // FPDU without markers
  FpduSearch search_;
  std::size_t searched_bytes_ = 0;        // size of the window at the last search
  std::uint64_t unrecognised_bytes_ = 0;  // bytes searched since FPDUs were last found
  bool after_cut_ = false;                // the search began because the snap length cut a header
  bool ever_found_ = false;
  bool has_base_ = false;
  std::uint64_t base_ = 0;       // stream position of the first FPDU, if has_base_
  bool refused_before_ = false;  // the last FPDU whose CRC was checked had a wrong one
  bool crc_was_wrong_ = false;   // of an FPDU, while it is unknown whether the stream has CRCs
  // The first FPDU with a wrong CRC, while it is unknown whether the stream has CRCs: the next FPDU
  // shows whether this one is damaged. One whose field is zero does not wait. RFC 5044 §4.4 allows
  // anything there without CRCs, and most senders leave zeros.
  std::optional<Unsettled> unsettled_;
  std::size_t budgeted_ = 0;
};

}  // namespace weft::capture
