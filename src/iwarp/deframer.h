// Turns TCP's bytes into DDP segments (RFC 5044 §4, §6), and lets large payloads be read directly
// into their target memory.
//
// Small FPDUs are read into a staging buffer, checked there and copied to their targets. A large
// FPDU is read into its target memory, except for its last bytes, which stay in the staging buffer
// until the CRC is checked. A program that polls the last byte of a buffer therefore sees it change
// only when the whole FPDU is known to be intact, and may then modify the buffer at once.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer_pool.h"
#include "base/crc32c.h"
#include "iwarp/segment.h"

namespace weft::iwarp {

class Deframer {
 public:
  struct Options {
    bool crc = true;
    bool strict = false;  // stage every FPDU whole: nothing is placed before its CRC is checked
  };

  // The most that is read into the staging buffer at once, when no large message is arriving. FPDUs
  // that fit are staged, larger ones are placed directly.
  static constexpr std::size_t staging_bytes = 16 * 1024;
  // How much of the end of a directly placed FPDU is held back until its CRC is checked.
  static constexpr std::size_t held_back_bytes = 64;

  // `sink` must outlive this object.
  Deframer(const Options& options, SegmentSink& sink);

  // Appends the memory for the next bytes of the stream. Appends nothing once a segment was
  // refused.
  void plan(std::vector<iovec>& out);
  // `bytes` bytes were read into what the last plan() appended, in order. Passes the segments that
  // are complete to the sink.
  void advance(std::size_t bytes);

  // The kernel could not access the target memory in what the last plan() appended. False if there
  // was none; otherwise the sink has received the segment's failure.
  [[nodiscard]] bool target_lost();

  // No more bytes are expected soon: gives back the buffer where nothing is in it.
  void rest();

  // Part of an FPDU has arrived: the end of the stream would cut it.
  [[nodiscard]] bool mid_fpdu() const { return phase_ != Phase::header || end_ > begin_; }
  [[nodiscard]] std::uint64_t fpdus() const { return fpdus_; }

 private:
  enum class Phase : std::uint8_t {
    header,   // until the DDP header is complete
    whole,    // a staged FPDU, until all of it is there
    direct,   // an FPDU with its payload read into the target
    refused,  // nothing more is processed
  };

  [[nodiscard]] std::size_t available() const { return end_ - begin_; }
  [[nodiscard]] const std::byte* at(std::size_t offset) const { return &staging_[begin_ + offset]; }
  void compact();
  [[nodiscard]] bool short_comes() const;
  [[nodiscard]] bool take_short();
  [[nodiscard]] bool offer_send(Bytes segment);
  [[nodiscard]] bool offer_write(Bytes segment);
  bool parse_header();
  bool choose_phase();
  bool take_whole();
  bool take_direct();
  void checksum_staged(std::size_t present);
  void checksum_until(std::size_t end);
  [[nodiscard]] std::uint32_t whole_crc(std::size_t bytes);
  bool check_crc(const std::byte* stored, std::uint32_t computed);
  bool copy_out(std::uint32_t offset, Bytes payload);
  bool checksum_placed(Bytes placed);
  void finish_fpdu(std::size_t consumed);
  void consume_fpdu(std::size_t bytes);
  bool refuse(wire::TerminateCode code, bool with_segment);
  [[nodiscard]] std::size_t header_end() const;
  [[nodiscard]] std::size_t trailer_bytes() const;
  [[nodiscard]] std::uint32_t direct_end() const;

  Options options_;
  SegmentSink& sink_;
  BufferPool& pool_;
  PooledBuffer staging_;   // while a part of an FPDU is there, or may be read
  std::size_t begin_ = 0;  // unprocessed bytes of staging_ are [begin_, end_)
  std::size_t end_ = 0;
  Phase phase_ = Phase::header;
  Segment segment_;  // valid from Phase::whole or Phase::direct on
  // The header in segment_ has an unknown version. Raised when the segment is processed.
  TerminateRaised foreign_version_;
  SegmentSink::Course course_ = SegmentSink::Course::place;
  Crc32c crc_;                // of a direct FPDU, as far as it is placed; or of summed_
  std::size_t summed_ = 0;    // bytes of a staged FPDU that crc_ has
  std::uint32_t placed_ = 0;  // payload bytes of a direct FPDU that are placed
  bool bulk_ = false;         // the last payload was large, so the next is expected to be
  bool continued_ = false;    // the last payload was not the end of its message
  std::vector<iovec> planned_;
  std::vector<iovec> scratch_;
  std::uint64_t fpdus_ = 0;
};

}  // namespace weft::iwarp
