// Error codes of Terminates in words, for reports and error messages.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "wire/terminate.h"

namespace weft::wire {

namespace {

struct Named {
  TerminateCode code;
  std::string_view text;
};

// RFC 5040 §4.8, RFC 5041 §7, RFC 5044 §8, RFC 6581 §7.
constexpr Named names[] = {
    {terminate::rdma_invalid_stag, "remote protection: invalid STag"},
    {terminate::rdma_bounds, "remote protection: base or bounds violation"},
    {terminate::rdma_access, "remote protection: access rights violation"},
    {terminate::rdma_stag_not_of_stream, "remote protection: STag not of this stream"},
    {terminate::rdma_wrap, "remote protection: tagged offset wraps around"},
    {terminate::rdma_cannot_invalidate, "remote protection: STag cannot be invalidated"},
    {terminate::rdma_version, "remote operation: invalid RDMAP version"},
    {terminate::rdma_unexpected_opcode, "remote operation: unexpected opcode"},
    {terminate::rdma_stream_catastrophic, "remote operation: catastrophic, this stream"},
    {terminate::rdma_global_catastrophic, "remote operation: catastrophic, global"},
    {terminate::rdma_unspecified, "remote operation: unspecified error"},
    {terminate::tagged_invalid_stag, "tagged buffer: invalid STag"},
    {terminate::tagged_bounds, "tagged buffer: base or bounds violation"},
    {terminate::tagged_stag_not_of_stream, "tagged buffer: STag not of this stream"},
    {terminate::tagged_wrap, "tagged buffer: tagged offset wraps around"},
    {terminate::tagged_version, "tagged buffer: invalid DDP version"},
    {terminate::untagged_invalid_queue, "untagged buffer: invalid queue number"},
    {terminate::untagged_no_buffer, "untagged buffer: no buffer available"},
    {terminate::untagged_msn_range, "untagged buffer: MSN out of range"},
    {terminate::untagged_invalid_offset, "untagged buffer: invalid message offset"},
    {terminate::untagged_too_long, "untagged buffer: message too long for its buffer"},
    {terminate::untagged_version, "untagged buffer: invalid DDP version"},
    {terminate::mpa_connection_lost, "TCP connection closed, terminated or lost"},
    {terminate::mpa_crc, "CRC error"},
    {terminate::mpa_marker, "marker and ULPDU length do not agree"},
    {terminate::mpa_bad_frame, "invalid request or reply frame"},
    {terminate::mpa_local_catastrophic, "local catastrophic error"},
    {terminate::mpa_insufficient_ird, "insufficient IRD resources"},
    {terminate::mpa_no_matching_rtr, "no matching ready-to-receive message"},
};

// RFC 5040 §4.8 numbers the layers: 0 is RDMA, 1 is DDP, 2 is the protocol below it.
std::string_view layer_name(std::uint8_t layer) {
  constexpr std::string_view layers[] = {"RDMAP", "DDP", "MPA"};
  return layer < std::size(layers) ? layers[layer] : "unknown layer";
}

}  // namespace

std::string describe(TerminateCode code) {
  const auto* named = std::ranges::find(names, code, &Named::code);
  std::string text(layer_name(code.layer));
  text += ", ";
  text += named != std::end(names) ? named->text : "unknown error";
  // The numbers as well: codes that the list lacks, and other tools, are found by them.
  text += " (" + std::to_string(code.layer) + "/" + std::to_string(code.type) + "/" +
          std::to_string(code.code) + ")";
  return text;
}

}  // namespace weft::wire
