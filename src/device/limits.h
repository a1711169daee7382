// What the device promises at most, in one place: each with its reason and what happens beyond it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::device::limits {

// QPNs have 24 bits; the table of a process is bounded by descriptors long before that. ENOMEM.
inline constexpr int max_queue_pairs = 16384;
// A ring is allocated when the queue is made: 16384 entries of a send queue take about 5 MB.
// EINVAL.
inline constexpr std::uint32_t max_work_requests = 16384;
// One FPDU must be describable in one sendmsg with room to spare. EINVAL.
inline constexpr std::uint32_t max_slices = 32;
// Beyond this, copying is slower than referring. EINVAL, never clamped: programs probe for it.
inline constexpr std::uint32_t max_inline_bytes = 1024;
// Who asks for less gets this much: several programs send a few bytes inline without having asked.
inline constexpr std::uint32_t least_inline_bytes = 64;
inline constexpr int max_completion_queues = 65536;
// A ring of 4 Mi completions takes 192 MB. EINVAL.
inline constexpr int max_completions = 4 * 1024 * 1024;
inline constexpr int max_shared_receive_queues = 16384;
// STags carry 24 random bits: keep the table sparse so that guessing stays hopeless. ENOMEM.
inline constexpr int max_memory_regions = 1 << 20;
inline constexpr std::uint64_t max_region_bytes = std::uint64_t{1} << 47;
// It is ordinary memory, so this is only a number that programs can plan with. EINVAL.
inline constexpr std::size_t max_device_memory_bytes = std::size_t{1} << 20;
inline constexpr std::uint32_t max_device_memory_alignment_log = 12;
inline constexpr int max_protection_domains = 65536;
// On the wire one more is negotiated, for acknowledgement (at most 128 there). Clamped by verbs'
// attributes, EINVAL beyond.
inline constexpr std::uint16_t max_read_depth = 127;
inline constexpr std::uint16_t max_wire_read_depth = max_read_depth + 1;
// One message, as InfiniBand has it. EINVAL.
inline constexpr std::uint32_t max_message_bytes = std::uint32_t{1} << 31;
// Of one connection, in the roce personality: Sends that found no receive, 64 bytes for each and
// their payload. Allocated as they come. A Weft peer waits, for others the stream ends.
inline constexpr std::uint32_t hold_bytes = 1 << 20;
// min_rnr_timer is a minimum, and threads do not run within microseconds as hardware does: no retry
// comes sooner.
inline constexpr std::uint64_t least_rnr_timer_ns = 1'000'000;
// An unreliable datagram is one packet, and InfiniBand's largest has so much. LOC_LEN_ERR.
inline constexpr std::uint32_t max_datagram_bytes = 4096;
// What waits to be read, for all queue pairs of a slot; the system grants less where it wants to.
// Then datagrams are lost, as on a network.
inline constexpr int datagram_buffer_bytes = 4 * 1024 * 1024;
// Of one socket, before the next gets its turn.
inline constexpr int datagrams_per_turn = 64;
inline constexpr int max_address_handles = 1 << 20;
// Systems allow a socket about 20 IPv4 groups (net.ipv4.igmp_max_memberships) unless told. ENOMEM.
inline constexpr int max_multicast_groups = 1024;
inline constexpr int max_multicast_members = 1024;
// How long a closed connection may take to hand over its last bytes; then it is cut.
inline constexpr std::uint64_t linger_ns = 1'000'000'000;
// MPA set-up on a connection that somebody opened to us; then it is closed.
inline constexpr std::uint64_t handshake_ns = 10'000'000'000;
// TCP set-up of a connection we open; then UNREACHABLE. About the patience of a kernel iWARP CM.
inline constexpr std::uint64_t connect_ns = 30'000'000'000;
// How long a connection that the peer's host refuses is tried again, at short intervals. Elsewhere,
// resolving routes and making queue pairs takes milliseconds, so that programs whose server closes
// one listener and opens the next (perftest -R) work there without waiting for each other. Then
// REJECTED.
inline constexpr std::uint64_t refused_ns = 1'000'000'000;
inline constexpr std::uint64_t refused_pause_ns = 5'000'000;
// The same for the connection of a queue pair that connects by itself; then it is tried again.
inline constexpr std::uint64_t pairing_connect_ns = 2'000'000'000;
// Between attempts, each pause twice as long as the last: while the peer is not ready to receive
// (it will connect as soon as it is), and while it refuses or is not there.
inline constexpr std::uint64_t shortest_not_yet_ns = 1'000'000;
inline constexpr std::uint64_t longest_not_yet_ns = 100'000'000;
inline constexpr std::uint64_t shortest_redial_ns = 10'000'000;
inline constexpr std::uint64_t longest_redial_ns = 500'000'000;
// Work waits at least so long for a peer that refuses or is not there, whatever the attributes say:
// on InfiniBand milliseconds are much, on a busy machine starting a process takes longer. Then
// RETRY_EXC_ERR.
inline constexpr std::uint64_t least_patience_ns = 2'000'000'000;
// The peer's first FPDU after our reply to its MPA request: a peer whose program connects its own
// queue pair sends it when that program gets round to it. Then UNREACHABLE.
inline constexpr std::uint64_t first_fpdu_ns = 60'000'000'000;
// Requests of one listener that the program has not fetched, where rdma_listen(3) names no number;
// more wait in TCP's queue.
inline constexpr int default_backlog = 128;
// Connections of one listener that have not said what they want; more wait in TCP's queue.
inline constexpr std::size_t max_half_open = 1024;
// Reads from one socket before the next gets its turn.
inline constexpr int reads_per_turn = 16;
// A CQ with more queue pairs than this asks epoll which of them have something.
inline constexpr std::size_t directly_polled_queue_pairs = 4;

}  // namespace weft::device::limits
