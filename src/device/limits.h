// The limits of the device, each with its reason and the error when it is exceeded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::device::limits {

// QPNs have 24 bits, but file descriptors limit a process much earlier. ENOMEM.
inline constexpr int max_queue_pairs = 16384;
// The ring is allocated with the queue: 16384 entries of a send queue take about 5 MB. EINVAL.
inline constexpr std::uint32_t max_work_requests = 16384;
// One FPDU must fit into one sendmsg(2) with room to spare. EINVAL.
inline constexpr std::uint32_t max_slices = 32;
// The same with Settings::strict: as the kernel's siw, whose limit is the lowest.
inline constexpr std::uint32_t strict_slices = 6;
// Larger copies are slower than references. EINVAL and no clamping, because programs probe for the
// limit.
inline constexpr std::uint32_t max_inline_bytes = 1024;
// A smaller request is raised to this: several programs send a few bytes inline without having
// asked for it.
inline constexpr std::uint32_t least_inline_bytes = 64;
inline constexpr int max_completion_queues = 65536;
// A ring of 4 Mi completions takes 192 MB. EINVAL.
inline constexpr int max_completions = 4 * 1024 * 1024;
inline constexpr int max_shared_receive_queues = 16384;
// STags have 24 random bits: the table must be sparse, so that guessing is hopeless. ENOMEM.
inline constexpr int max_memory_regions = 1 << 20;
inline constexpr std::uint64_t max_region_bytes = std::uint64_t{1} << 47;
// Device memory is ordinary memory here; the limit is a number for programs to plan with. EINVAL.
inline constexpr std::size_t max_device_memory_bytes = std::size_t{1} << 20;
inline constexpr std::uint32_t max_device_memory_alignment_log = 12;
inline constexpr int max_protection_domains = 65536;
// On the wire one more is negotiated, for acknowledgement (at most 128). ibv_modify_qp(3): EINVAL
// beyond.
inline constexpr std::uint16_t max_read_depth = 127;
inline constexpr std::uint16_t max_wire_read_depth = max_read_depth + 1;
// The largest message, as on InfiniBand. EINVAL.
inline constexpr std::uint32_t max_message_bytes = std::uint32_t{1} << 31;
// Per connection in the roce personality: bytes for Sends that find no receive, 64 for each plus
// its payload, allocated on arrival. Beyond it a Weft peer waits; with other peers the stream ends.
inline constexpr std::uint32_t hold_bytes = 1 << 20;
// min_rnr_timer is a lower bound, and threads cannot run within microseconds as hardware does, so
// no retry is made sooner.
inline constexpr std::uint64_t least_rnr_timer_ns = 1'000'000;
// An unreliable datagram is one packet, and this is InfiniBand's largest MTU. LOC_LEN_ERR.
inline constexpr std::uint32_t max_datagram_bytes = 4096;
// Socket buffer for the unread datagrams of all queue pairs of a slot; the system may grant less.
// Beyond it datagrams are lost, as on a network.
inline constexpr int datagram_buffer_bytes = 4 * 1024 * 1024;
// Datagrams that one socket may deliver before the next socket is served.
inline constexpr int datagrams_per_turn = 64;
inline constexpr int max_address_handles = 1 << 20;
// By default the kernel allows a socket about 20 IPv4 groups (net.ipv4.igmp_max_memberships).
// ENOMEM.
inline constexpr int max_multicast_groups = 1024;
inline constexpr int max_multicast_members = 1024;
// The time for a closed connection to send its last bytes; then it is reset.
inline constexpr std::uint64_t linger_ns = 1'000'000'000;
// The time after rdma_disconnect(3) in which the peer may still prove requests that were sent
// before it; then they are flushed. A peer answers within a millisecond, on a busy machine as soon
// as it runs.
inline constexpr std::uint64_t closing_ns = 1'000'000'000;
// How long the end of a connection by the peer is not reported while the program has not polled a
// success of it, and the interval of looks at that. Programs that rely on the order poll all the
// time; others lose no more than this.
inline constexpr std::uint64_t unpolled_ns = 100'000'000;
inline constexpr std::uint64_t unpolled_look_ns = 1'000'000;
// The time for the MPA handshake on an accepted connection; then it is closed.
inline constexpr std::uint64_t handshake_ns = 10'000'000'000;
// The time for the reply to an rdma_connect(3), which the peer's program sends with rdma_accept(3);
// then UNREACHABLE. Linux's connection manager of InfiniBand and RoCE sends the request 16 times,
// 4096 ms and twice the packet lifetime of 256 ms apart. Its iWARP devices wait for 10 s.
inline constexpr std::uint64_t reply_ns = 16 * (4'096'000'000 + 2 * 256'000'000);
// The time for the first byte of an MPA handshake; a client sends it as soon as TCP has connected.
inline constexpr std::uint64_t first_byte_ns = 3'000'000'000;
// The time for the TCP handshake of an outgoing connection; then UNREACHABLE. About the timeout of
// kernel iWARP CMs.
inline constexpr std::uint64_t connect_ns = 30'000'000'000;
// The time in which a refused connection is retried at short intervals; then REJECTED. On other
// devices, resolving routes and creating queue pairs takes milliseconds, and some programs rely on
// that delay: their server closes one listener and then opens the next (perftest -R).
inline constexpr std::uint64_t refused_ns = 1'000'000'000;
// The same towards another host. That server may wait for the last bytes of the connection before,
// and TCP repeats lost ones only after 0.2 to 1.6 s.
inline constexpr std::uint64_t refused_far_ns = 4'000'000'000;
inline constexpr std::uint64_t refused_pause_ns = 5'000'000;
// The same for a queue pair that connects by GID and number; then the attempt is repeated.
inline constexpr std::uint64_t pairing_connect_ns = 2'000'000'000;
// How many such connections are made to one process at a time. Within a host the first ones bring
// about a way without TCP. To another host it is half of what the peer takes before it drops
// connections whose request has not come: see max_half_open.
inline constexpr std::size_t dials_within_host = 64;
inline constexpr std::size_t dials_to_a_host = 512;
// A queue pair that has waited so long for its turn connects without it: the peers of those before
// it may be gone.
inline constexpr std::uint64_t longest_wait_to_dial_ns = 1'000'000'000;
// Where both ends connect by GID and number, one connection is enough, so the higher end gives the
// lower one this time to ask for it. Only where nothing can reach the higher end does it matter.
inline constexpr std::uint64_t lower_end_asks_ns = 20'000'000;
// Programs take a queue pair to RTS right after RTR, and only then can it prove who it is (its
// PSN). One that stays in RTR asks without proof after this time.
inline constexpr std::uint64_t rts_follows_ns = 1'000'000;
// Pauses between attempts, each twice as long as the one before: `not_yet` while the peer is not
// ready to receive (it connects as soon as it is), `redial` while it refuses or does not exist.
inline constexpr std::uint64_t shortest_not_yet_ns = 1'000'000;
inline constexpr std::uint64_t longest_not_yet_ns = 100'000'000;
inline constexpr std::uint64_t shortest_redial_ns = 10'000'000;
inline constexpr std::uint64_t longest_redial_ns = 500'000'000;
// The minimum time that requests wait for a peer that refuses or does not exist, whatever the
// attributes are; then RETRY_EXC_ERR. InfiniBand timeouts of milliseconds are shorter than the
// start of a process on a busy machine.
inline constexpr std::uint64_t min_retry_time_ns = 2'000'000'000;
// The time for the peer's first FPDU after the reply to its MPA request; then UNREACHABLE. A
// program that connects its own queue pair may send it late; 20 s are about what InfiniBand's
// connection manager waits.
inline constexpr std::uint64_t first_fpdu_ns = 20'000'000'000;
// How long an initiator that asked for no ready-to-receive message may send nothing, while work
// waits for its first FPDU, before the user is informed.
inline constexpr std::uint64_t silent_initiator_ns = 1'000'000'000;
// After this time the responder sends first, where the user allows it.
inline constexpr std::uint64_t responder_first_ns = 100'000'000;
// Requests per listener that the program has not fetched, if rdma_listen(3) gives no backlog;
// further ones wait in TCP's queue.
inline constexpr int default_backlog = 128;
// Accepted connections of a device that have not sent their MPA request, and half as many of one
// peer's address; beyond it the oldest silent one is closed. Also a share of RLIMIT_NOFILE, because
// strangers must leave the program descriptors of its own.
inline constexpr std::size_t max_half_open = 1024;
inline constexpr std::size_t half_open_share = 4;
inline constexpr std::size_t least_half_open = 4;
// Refused connections of a device that linger; beyond it the oldest is reset.
inline constexpr std::size_t max_refused = 256;
inline constexpr std::size_t refused_share = 8;
// The time until a request from an address that no queue pair expects is answered. A peer that is a
// little early is answered as soon as its queue pair here learns of it.
inline constexpr std::uint64_t stranger_answer_ns = 100'000'000;
// The interval of looks at whether the peer's host still answers, while requests wait for it.
inline constexpr std::uint64_t peer_look_ns = 250'000'000;
// Reads from one socket before the next socket is served.
inline constexpr int reads_per_turn = 16;
// The same once a request is complete, in bytes.
inline constexpr std::size_t bytes_per_turn = std::size_t{192} << 10;
// The memory that a program allocates from the shared heap, unless the user has another limit. It
// is copied at each fork(2), and its pages are never huge ones. Beyond it memory is ordinary.
inline constexpr std::size_t shared_heap_bytes = std::size_t{256} << 20;
// Contexts of one peer process that connections of one pair belong to, or have belonged to while
// the peer has them open. Each takes two mappings.
inline constexpr std::size_t max_peer_contexts = 256;
// Mappings of one peer process's files here, and their size in all: each takes one of the process's
// mappings (vm.max_map_count). Other regions are copied by the kernel. A file of at most the last
// size is mapped as a whole, once for all its regions.
inline constexpr std::size_t max_peer_mappings = 64;
inline constexpr std::uint64_t max_peer_mapped_bytes = std::uint64_t{64} << 30;
inline constexpr std::uint64_t max_whole_file_bytes = std::uint64_t{8} << 30;
// A completion queue with more queue pairs uses epoll to find the ready ones instead of asking
// each.
inline constexpr std::size_t directly_polled_queue_pairs = 4;
// How many queue pairs of such a queue one poll looks at in shared memory, which epoll does not
// show.
inline constexpr std::size_t looks_of_a_poll = 64;
// How often a program that polls such a queue serves the rest of the device as well. One look takes
// about half a microsecond.
inline constexpr std::uint64_t between_looks_at_others_ns = 20'000;
// How often the progress thread looks whether the program has left gathered requests alone: see
// LocalCarrier::watch_gathering(). epoll_wait(2) makes up to a millisecond more of it.
inline constexpr std::uint64_t between_looks_at_gathered_ns = 1'000'000;
// Messages to a shared receive queue on this host that the peer has not taken for this long, while
// it neither polls nor sleeps: its progress thread is woken.
inline constexpr std::uint64_t between_looks_at_sent_ns = 200'000;
// Pairs of this process with another one of this host that no connection uses: see
// local/process_pair.h. Each holds a descriptor. Beyond it the one that was used longest ago is
// closed.
inline constexpr std::size_t max_idle_process_pairs = 64;
// Free inboxes that a pair of processes keeps for its next connections. Each has about 70 KiB of
// addresses, and the pages that were used.
inline constexpr std::size_t kept_inboxes = 64;

}  // namespace weft::device::limits
