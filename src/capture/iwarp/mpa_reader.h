// One direction of an MPA stream (RFC 5044): the request or reply frame, then FPDUs, without
// markers and with their CRC checked. Where bytes are missing it finds the next FPDU again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "capture/iwarp/fpdu_search.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/traffic.hpp"
#include "wire/mpa.h"

namespace weft::capture {

// A part of a buffer that stands for bytes that are not in the capture.
struct MissingRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Fpdu {
  Stamp stamp;                 // of the latest frame that it is in
  std::uint64_t position = 0;  // in the stream, of the first byte behind it
  Bytes ulpdu;
  std::span<const MissingRange> missing;  // of `ulpdu`; mostly none
};

class MpaEvents {
 public:
  virtual ~MpaEvents() = default;
  // The stream begins with a request or reply, or with an iSER session it comes to one. Private
  // data is valid during the call only.
  virtual void on_frame(const Stamp& stamp, const wire::MpaFrameView& frame) = 0;
  // The very first bytes are something else. True: FPDUs are to be looked for nevertheless.
  virtual bool on_stranger() = 0;
  // FPDUs were found in mid-stream.
  virtual void on_found(bool crc_good) = 0;
  virtual void on_fpdu(const Fpdu& fpdu) = 0;
  // Bytes that are missing, or cannot be understood because of it.
  virtual void on_lost(const Stamp& stamp, std::uint64_t bytes) = 0;
  virtual void on_violation(const Stamp& stamp, const Violation& violation) = 0;
  // What a search may rely on.
  [[nodiscard]] virtual FpduExpectation expectation() const = 0;
};

class MpaReader {
 public:
  enum class Crc : std::uint8_t { unknown, on, off };
  enum class Markers : std::uint8_t { unknown, on, off };
  // What the handshake has settled, or traffic has shown.
  struct Settings {
    Crc crc = Crc::unknown;
    Markers markers = Markers::unknown;  // in this direction
  };

  // Bytes of a stream that nothing is recognised in, until it is given up.
  static constexpr std::uint64_t max_search_bytes = 1024 * 1024;

  MpaReader(MpaEvents& events, Budget& budget) : events_(events), budget_(budget) {}
  MpaReader(const MpaReader&) = delete;
  MpaReader& operator=(const MpaReader&) = delete;
  ~MpaReader() { release(); }

  // Before the first byte: whether that is the stream's first.
  void start(bool from_the_start);
  void set_crc(Crc crc) { settings_.crc = crc; }
  void set_markers(Markers markers) { settings_.markers = markers; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  void on_bytes(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  void on_hole(const Stamp& stamp, std::uint64_t bytes);
  // Nothing more comes.
  void finish(const Stamp& stamp);

  // It is no MPA stream, as far as one can tell: it wants no more bytes.
  [[nodiscard]] bool gave_up() const { return mode_ == Mode::stranger; }
  void give_up();

 private:
  enum class Mode : std::uint8_t { greeting, fpdus, searching, stranger };
  struct Mark {
    std::size_t offset;  // in the buffer
    Stamp stamp;         // of the frame whose bytes begin there
  };

  void greet(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  void read_fpdus(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  // Takes from `bytes` what the FPDU in the buffer lacks.
  [[nodiscard]] std::size_t collect(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  // Bytes on the stream of the FPDU in the buffer, or of as much of it as tells its length.
  [[nodiscard]] std::size_t wanted_bytes() const;
  // Bytes of it that will not come.
  void fill_missing(const Stamp& stamp, std::size_t bytes);
  void complete();
  // An FPDU as it is on the stream. It ends at `position`.
  void take(const Stamp& stamp, std::uint64_t position, Bytes raw,
            std::span<const MissingRange> missing);
  void take_marked(const Stamp& stamp, std::uint64_t position, Bytes raw,
                   std::span<const MissingRange> missing);
  void take_plain(const Stamp& stamp, std::uint64_t position, Bytes plain,
                  std::span<const MissingRange> missing, bool crc_good);
  [[nodiscard]] bool checksum_fits(const Stamp& stamp, Bytes plain, bool crc_good);

  // Why the window is searched: it has grown, or it will not, as bytes behind it are missing or
  // there are none.
  enum class Occasion : std::uint8_t { growth, hole, end };
  void search(const Stamp& stamp, std::uint64_t position, Bytes bytes);
  void try_search(Occasion occasion);
  [[nodiscard]] std::optional<FpduStart> find_start(Occasion occasion);
  [[nodiscard]] std::optional<FpduStart> find_by_marker() const;
  void found(const FpduStart& start);
  void drop_window(std::size_t bytes);
  void begin_search();
  void release();

  MpaEvents& events_;
  Budget& budget_;
  Settings settings_;
  Mode mode_ = Mode::greeting;
  bool from_the_start_ = false;
  // In `fpdus` an FPDU that is not whole yet, in `searching` the window; in `greeting` a part of
  // the frame.
  std::vector<std::byte> buffer_;
  std::uint64_t buffer_position_ = 0;  // of its first byte in the stream
  std::vector<MissingRange> missing_;  // in the buffer
  Stamp buffer_stamp_;                 // the latest in it
  std::vector<Mark> marks_;            // while searching
  std::vector<std::byte> plain_;       // without markers
  FpduSearch search_;
  std::size_t searched_bytes_ = 0;      // of the window, at the last look
  std::uint64_t searched_in_vain_ = 0;  // since FPDUs were last found
  bool ever_found_ = false;
  bool has_base_ = false;
  std::uint64_t base_ = 0;  // position of the first FPDU of the stream, where known
  unsigned bad_crcs_ = 0;   // while it is unknown whether there are any
  std::size_t budgeted_ = 0;
};

}  // namespace weft::capture
