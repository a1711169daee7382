// FPDUs as values, which tests build and compare like the lines of an RFC trace.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/control_word.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::test {

using Content = std::vector<std::byte>;

// A DDP segment: header and payload, without length, pad and CRC.
struct Ulpdu {
  Content bytes;
  bool operator==(const Ulpdu&) const = default;
};

[[nodiscard]] Content text(std::string_view characters);
[[nodiscard]] Content joined(Bytes first, Bytes second);

// --- Segments ------------------------------------------------------------------------------------

struct Part {
  std::uint32_t offset = 0;
  bool last = true;
};

[[nodiscard]] Ulpdu tagged(wire::RdmapOpcode opcode, std::uint32_t stag, std::uint64_t offset,
                           Bytes payload, bool last = true);
[[nodiscard]] Ulpdu untagged(const wire::DdpUntagged& header, Bytes payload);

[[nodiscard]] Ulpdu write(std::uint32_t stag, std::uint64_t offset, Bytes payload,
                          bool last = true);
[[nodiscard]] Ulpdu read_response(std::uint32_t stag, std::uint64_t offset, Bytes payload,
                                  bool last = true);
[[nodiscard]] Ulpdu send(std::uint32_t msn, Bytes payload, Part part = {},
                         wire::RdmapOpcode opcode = wire::RdmapOpcode::send,
                         std::uint32_t invalidate_stag = 0);
[[nodiscard]] Ulpdu immediate(std::uint32_t msn, std::uint32_t data_be,
                              wire::RdmapOpcode opcode = wire::RdmapOpcode::immediate_data);
[[nodiscard]] Ulpdu read_request(std::uint32_t msn, const wire::ReadRequest& request);
// A control word to the side that has this STag for them.
[[nodiscard]] Ulpdu control(std::uint32_t stag, wire::ControlWord word, std::uint64_t value);
// A read of no bytes; its response proves that earlier requests have been placed.
[[nodiscard]] Ulpdu empty_read(std::uint32_t msn);
// The response to it, which names its sink.
[[nodiscard]] Ulpdu empty_response();
[[nodiscard]] Ulpdu atomic_request(std::uint32_t msn, const wire::AtomicRequest& request);
[[nodiscard]] Ulpdu atomic_response(std::uint32_t msn, std::uint32_t request_id,
                                    std::uint64_t original);
[[nodiscard]] Ulpdu terminate(const wire::Terminate& message);
// Quotes `culprit` as RFC 5040 §4.8 requires; with the R bit and the request's header if
// `with_request`.
[[nodiscard]] Ulpdu terminate(wire::TerminateCode code, const Ulpdu& culprit,
                              bool with_request = false);
[[nodiscard]] Ulpdu terminate(wire::TerminateCode code);

// --- The stream ----------------------------------------------------------------------------------

[[nodiscard]] Content fpdu(const Ulpdu& ulpdu, bool crc = true);
// Splits a stream of whole FPDUs; the test fails if one is malformed.
[[nodiscard]] std::vector<Ulpdu> split(Bytes stream, bool crc = true);
[[nodiscard]] std::string describe(const Ulpdu& ulpdu);

void PrintTo(const Ulpdu& ulpdu, std::ostream* out);

}  // namespace weft::test
