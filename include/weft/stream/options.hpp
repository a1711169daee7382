// Options of streams, their limits, and the errors of connecting.
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

// How messages are transferred. Both sides must support the variant; the passive side chooses it.
enum class Variant : std::uint8_t {
  automatic,       // immediate if both devices support it
  immediate,       // RDMA writes with immediate
  write_and_send,  // an RDMA write and a small send behind it: for adapters without immediates
};

// Detects a peer that no longer exists. When nothing has been received for `idle`, the stream sends
// a write of zero bytes. If that is not answered within `interval` times `probes`, the stream fails
// with ETIMEDOUT. The peer's device answers, even if its program is blocked.
struct Keepalive {
  std::chrono::milliseconds idle = std::chrono::hours(2);
  std::chrono::milliseconds interval = std::chrono::seconds(75);
  std::uint32_t probes = 9;
};

inline constexpr std::uint32_t max_buffer_bytes = 64 * 1024 * 1024;
inline constexpr std::uint32_t default_buffer_bytes = 32 * 1024;
// Up to this size buffers grow by themselves, if no size was asked for.
inline constexpr std::uint32_t default_growth_bytes = 2 * 1024 * 1024;
inline constexpr std::uint32_t min_queue = 2;
inline constexpr std::uint32_t max_queue = 65535;

// Options of one stream, or of all streams that a listener accepts.
struct Options {
  std::uint32_t send_buffer_bytes = default_buffer_bytes;     // 1 to max_buffer_bytes
  std::uint32_t receive_buffer_bytes = default_buffer_bytes;  // 1 to max_buffer_bytes
  // Buffers that were too small grow up to this size; one that is larger keeps its size, so that 0
  // lets none grow. No value: buffers of the default size grow up to default_growth_bytes, others
  // keep their size. Memory is used as a buffer grows. Only on the embedded device: an adapter
  // would lock all of the memory at once.
  std::optional<std::uint32_t> growth_bytes{};
  // Messages that may be under way to the peer, and from it: min_queue to max_queue, limited by the
  // device; on one host 384 to receive are taken as 26. `write_and_send` takes two of send_queue.
  std::uint32_t send_queue = 384;
  std::uint32_t receive_queue = 384;
  Variant variant = Variant::automatic;
  std::optional<Keepalive> keepalive{};  // nothing: no keepalive
  // How long a call that has to wait polls, yielding the processor in between, before it blocks.
  // A thread that blocks is woken by way of another thread, which takes longer. Twice as long where
  // the last wait that blocked was over within that time.
  std::chrono::microseconds spin{50};
  // How long the destructor of a Stream may wait until everything sent has reached the peer's
  // device. That takes a round trip if the peer works, whatever its program does.
  std::chrono::milliseconds linger = std::chrono::seconds(5);
  // How long the peer's program may take to accept or to reject, on the embedded device; then the
  // stream is not connected: ETIMEDOUT. No value: as long as rdma_connect(3) waits, which is more
  // than a minute unless DeviceOptions::personality is iwarp.
  std::optional<std::chrono::milliseconds> answer_timeout{};
  // How long connect() repeats an attempt that is refused because nothing listens at the port, on
  // the embedded device: 0 or more. The server may be about to listen. No value: 1 s, and 4 s to
  // other hosts.
  std::optional<std::chrono::milliseconds> refused_time{};
  // How many of its buffers the peer may map, for this side to write to: 0 to 255.
  std::uint32_t mapped_buffers = 0;
  // For layers that build on streams: a Unix socket (socketpair(2)), or -1. While the stream has
  // watchers and no other observers, a peer of the same host writes a byte to it when bytes arrive
  // that this side waits for, instead of making a thread of this process report them. A thread that
  // waits for the other end of the pair is woken by that. See Stream::Readiness::bells. The stream
  // duplicates the descriptor while it connects.
  int bell = -1;
  // The embedded device of the stream or listener, of open_own_device() for example, whose context
  // is kept open meanwhile; null: the one that the process shares. A listener accepts with its own
  // device.
  const verbs::Context* device = nullptr;  // used during the call only
  bool ipv6_only = false;  // a listener on an IPv6 address does not accept IPv4 peers
  verbs::Backend backend = verbs::default_backend();
};

// Throws Error(EINVAL), which names the first option that is out of range. Limits of the device are
// checked when the stream connects, and are EINVAL as well.
WEFT_API void check(const Options& options);

// The maximum length of private data of a request, an acceptance or a rejection.
[[nodiscard]] WEFT_API std::size_t max_private_data_bytes(
    verbs::Backend backend = verbs::default_backend());

// The peer has rejected the request. error_number() is ECONNREFUSED, EPROTONOSUPPORT if it uses
// another version or supports no common variant, or ECONNRESET if it has closed without an answer.
class WEFT_API Rejected : public Error {
 public:
  // An errno value, a sentence about the rejection, the private data that came with it, and what
  // programs can evaluate.
  Rejected(int error_number, const std::string& what, std::vector<std::byte> private_data,
           ErrorDetail detail = {});
  // The private data that the peer's program has sent with the rejection.
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  std::vector<std::byte> private_data_;
};

}  // namespace weft::stream
