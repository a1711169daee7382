#include "wire/hello.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace weft::wire {
namespace {

constexpr std::string_view key = "Weft";

// Where each field stands.
constexpr std::size_t version_at = 4;
constexpr std::size_t answer_at = 6;
constexpr std::size_t source_at = 8;
constexpr std::size_t destination_at = 12;
constexpr std::size_t send_psn_at = 16;
constexpr std::size_t receive_psn_at = 20;
constexpr std::size_t generation_at = 24;
constexpr std::size_t capabilities_at = 28;
constexpr std::size_t control_stag_at = 32;
constexpr std::size_t hold_at = 36;  // and eight bytes that are zero and not looked at

}  // namespace

Result<Hello, WireError> Hello::parse(Bytes data) {
  if (data.size() < key.size()) return WireError::truncated;
  if (std::memcmp(data.data(), key.data(), key.size()) != 0) return WireError::bad_key;
  if (data.size() < bytes) return WireError::truncated;
  const auto word = [&](std::size_t at) { return load_be<std::uint32_t>(data.data() + at); };
  const auto half = [&](std::size_t at) { return load_be<std::uint16_t>(data.data() + at); };
  return Hello{.version = half(version_at),
               .answer = static_cast<HelloAnswer>(half(answer_at)),
               .source_qpn = word(source_at),
               .destination_qpn = word(destination_at),
               .send_psn = word(send_psn_at),
               .receive_psn = word(receive_psn_at),
               .generation = word(generation_at),
               .capabilities = word(capabilities_at),
               .control_stag = word(control_stag_at),
               .hold_capacity_bytes = word(hold_at)};
}

void Hello::emit(MutableBytes out) const {
  std::fill_n(out.begin(), bytes, std::byte{0});
  std::memcpy(out.data(), key.data(), key.size());
  store_be(out.data() + version_at, version);
  store_be(out.data() + answer_at, static_cast<std::uint16_t>(answer));
  store_be(out.data() + source_at, source_qpn);
  store_be(out.data() + destination_at, destination_qpn);
  store_be(out.data() + send_psn_at, send_psn);
  store_be(out.data() + receive_psn_at, receive_psn);
  store_be(out.data() + generation_at, generation);
  store_be(out.data() + capabilities_at, capabilities);
  store_be(out.data() + control_stag_at, control_stag);
  store_be(out.data() + hold_at, hold_capacity_bytes);
}

}  // namespace weft::wire
