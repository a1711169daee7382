// What a stream can be told before it is connected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/export.hpp"
#include "weft/verbs.hpp"

namespace weft::stream {

using verbs::Address;

// How bytes travel. Both sides must know it; the side that is connected to chooses.
enum class Variant : std::uint8_t {
  automatic,       // immediate where both devices can
  immediate,       // RDMA writes with immediate
  write_and_send,  // an RDMA write and a small send behind it: for adapters without immediates
};

// Finds a peer that has vanished without a word: a write of no bytes, once nothing was heard for
// `idle`, must be answered within `interval` times `probes`; then the stream fails with ETIMEDOUT.
// The peer's device answers, whatever its program does.
struct Keepalive {
  std::chrono::milliseconds idle = std::chrono::hours(2);
  std::chrono::milliseconds interval = std::chrono::seconds(75);
  std::uint32_t probes = 9;
};

inline constexpr std::uint32_t max_buffer_bytes = 64 * 1024 * 1024;
inline constexpr std::uint32_t min_queue = 2;
inline constexpr std::uint32_t max_queue = 65535;

// Of a stream, or of all that a listener accepts.
struct Options {
  std::uint32_t send_buffer_bytes = 32 * 1024;     // 1 to max_buffer_bytes
  std::uint32_t receive_buffer_bytes = 32 * 1024;  // 1 to max_buffer_bytes
  // Messages under way to the peer, and from it: min_queue to max_queue, and what the device has.
  // `write_and_send` needs two places for each message that is sent.
  std::uint32_t send_queue = 384;
  std::uint32_t receive_queue = 384;
  Variant variant = Variant::automatic;
  std::optional<Keepalive> keepalive;  // nothing: none
  // How long a call that has to wait looks again and again, and lets others run in between, before
  // it sleeps. To be woken takes two hand-overs between threads, which cost more.
  std::chrono::microseconds spin{50};
  // How long the end of a Stream may wait until everything sent has reached the peer's device. A
  // peer that lives needs no more than a round trip, whatever its program does.
  std::chrono::milliseconds linger = std::chrono::seconds(5);
  // How many buffers the peer may map for us to write into, up to 255.
  std::uint32_t mapped_buffers = 0;
  bool ipv6_only = false;  // of a listener on an IPv6 address: IPv4 peers are not for it
  verbs::Backend backend = verbs::default_backend();
};

// Throws Error(EINVAL) that names the first option out of range. What the device lacks comes out
// when the stream is connected, also as EINVAL.
WEFT_API void check(const Options& options);

// How many bytes of private data a request, an acceptance or a rejection may carry.
[[nodiscard]] WEFT_API std::size_t max_private_data_bytes(
    verbs::Backend backend = verbs::default_backend());

// The peer said no: error_number() is ECONNREFUSED, or EPROTONOSUPPORT where it speaks another
// version or no common variant.
class WEFT_API Refused : public Error {
 public:
  Refused(int error_number, const std::string& what, std::vector<std::byte> private_data);
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  std::vector<std::byte> private_data_;
};

}  // namespace weft::stream
