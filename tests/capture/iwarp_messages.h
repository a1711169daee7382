// RDMA messages of both sides of an iWARP connection, with the MSNs that are due.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "capture/made_capture.h"
#include "support/fpdu.h"

namespace weft::capture::test {

// Messages of both sides on a connection, in parts of `part_bytes`.
class IwarpMessages {
 public:
  IwarpMessages(IwarpTalk& talk, std::size_t part_bytes) : talk_(talk), part_bytes_(part_bytes) {}

  void send(Side side, Bytes message) {
    const std::uint32_t msn = ++of(side).sends;
    parts(message, [&](std::size_t at, Bytes part, bool last) {
      talk_.fpdu(side, weft::test::send(msn, part, {static_cast<std::uint32_t>(at), last}));
    });
    talk_.flush(side);
  }
  void write(Side side, std::uint32_t key, std::uint64_t address, Bytes bytes) {
    parts(bytes, [&](std::size_t at, Bytes part, bool last) {
      talk_.fpdu(side, weft::test::write(key, address + at, part, last));
    });
  }
  // By two requests, which are both under way before the first is answered.
  void read(Side side, std::uint32_t key, std::uint64_t address, Bytes bytes) {
    const std::size_t half = bytes.size() / 2;
    request(side, key, address, 0, half);
    request(side, key, address, half, bytes.size() - half);
    talk_.flush(side);
    answer(other(side), 0, bytes.first(half));
    answer(other(side), half, bytes.subspan(half));
    talk_.flush(other(side));
  }

 private:
  // The same for all Reads: one after the other they place their answers there.
  static constexpr std::uint32_t sink = 0xA0B0C0D0;
  static constexpr std::uint64_t sink_offset = 0x7000;
  void request(Side side, std::uint32_t key, std::uint64_t address, std::size_t offset,
               std::size_t bytes) {
    if (bytes == 0) return;
    talk_.fpdu(side, weft::test::read_request(++of(side).requests,
                                              {.sink_stag = sink,
                                               .sink_offset = sink_offset + offset,
                                               .size_bytes = static_cast<std::uint32_t>(bytes),
                                               .source_stag = key,
                                               .source_offset = address + offset}));
  }
  void answer(Side side, std::size_t offset, Bytes bytes) {
    parts(bytes, [&](std::size_t at, Bytes part, bool last) {
      talk_.fpdu(side, weft::test::read_response(sink, sink_offset + offset + at, part, last));
    });
  }

  struct Numbers {
    std::uint32_t sends = 0;
    std::uint32_t requests = 0;
  };
  [[nodiscard]] Numbers& of(Side side) { return numbers_[side == Side::a ? 0 : 1]; }

  void parts(Bytes bytes, const auto& tell) const {
    for (std::size_t at = 0; at < bytes.size(); at += part_bytes_) {
      const std::size_t size = std::min(part_bytes_, bytes.size() - at);
      tell(at, bytes.subspan(at, size), at + size == bytes.size());
    }
  }

  IwarpTalk& talk_;
  std::size_t part_bytes_;
  std::array<Numbers, 2> numbers_;
};

}  // namespace weft::capture::test
