// From TCP's bytes to DDP segments (RFC 5044 §4, §6), with payload going straight where it belongs.
//
// Small FPDUs are read into a staging buffer, checked there and copied out. For a large one the
// deframer reads into the target memory itself, all but its last bytes: those wait in the staging
// buffer for the CRC, so that a program that watches the last byte of a buffer sees it only when
// the whole FPDU was found intact, and may then change the buffer at once.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/crc32c.h"
#include "iwarp/segment.h"

namespace weft::iwarp {

class Deframer {
 public:
  struct Options {
    bool crc = true;
    bool strict = false;  // stage every FPDU whole: nothing is placed before its CRC is right
  };

  // What is read at most into the staging buffer when no large message is under way.
  static constexpr std::size_t staging_bytes = 16 * 1024;
  // The end of a directly placed FPDU that is held back until its CRC is known to be right.
  static constexpr std::size_t held_back_bytes = 64;

  Deframer(const Options& options, SegmentSink& sink);

  // Appends where the next bytes of the stream go. Appends nothing once refused.
  void plan(std::vector<iovec>& out);
  // `bytes` bytes were read into what the last plan() gave, in order.
  void advance(std::size_t bytes);

  // An FPDU has begun and is not complete: the end of the stream would cut it.
  [[nodiscard]] bool mid_fpdu() const { return phase_ != Phase::header || end_ > begin_; }
  [[nodiscard]] std::uint64_t fpdus() const { return fpdus_; }

 private:
  enum class Phase : std::uint8_t { header, whole, direct, refused };

  [[nodiscard]] std::size_t available() const { return end_ - begin_; }
  [[nodiscard]] const std::byte* at(std::size_t offset) const { return &staging_[begin_ + offset]; }
  void compact();
  bool parse_header();
  bool choose_phase();
  bool take_whole();
  bool take_direct();
  bool check_crc(const std::byte* stored, std::uint32_t computed);
  bool copy_out(std::uint32_t offset, Bytes payload);
  void finish_fpdu(std::size_t consumed);
  bool refuse(wire::TerminateCode code, bool with_segment);
  [[nodiscard]] std::size_t header_end() const;
  [[nodiscard]] std::size_t trailer_bytes() const;
  [[nodiscard]] std::uint32_t direct_end() const;

  Options options_;
  SegmentSink& sink_;
  std::size_t capacity_;
  std::unique_ptr<std::byte[]> staging_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Phase phase_ = Phase::header;
  Segment segment_;
  TerminateRaised foreign_version_;  // of the header in segment_; ends the stream when acted upon
  SegmentSink::Course course_ = SegmentSink::Course::place;
  Crc32c crc_;                       // of a direct FPDU, as far as placed
  std::uint32_t placed_ = 0;         // payload bytes of a direct FPDU in their place
  bool bulk_ = false;                // the last payload was large: expect another
  std::size_t bulk_head_bytes_ = 0;  // of its frames: length field and DDP header
  bool continued_ = false;           // the message of the last payload goes on
  std::vector<iovec> planned_;
  std::vector<iovec> scratch_;
  std::uint64_t fpdus_ = 0;
};

}  // namespace weft::iwarp
