// Values that go into and come out of the protocol core: work requests, completions, statuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::iwarp {

// The STag in messages that name no memory: the empty Write of a ready-to-receive message, and the
// empty Read of a probe. Receivers do not check it (RFC 5040 §5.1, §5.2.1), but some adapters
// refuse 0; the kernel's siw sends 1 as well.
constexpr std::uint32_t no_memory_stag = 1;

// A piece of registered local memory, as the application names it in a work request.
struct LocalSlice {
  std::uint64_t address = 0;
  std::uint32_t length_bytes = 0;
  std::uint32_t lkey = 0;
};

enum class Operation : std::uint8_t {
  send,
  send_invalidate,
  send_immediate,  // only to a peer that understands announcements: see receiver.h
  write,
  write_immediate,
  read,
  compare_swap,
  fetch_add,
  atomic_write,  // 8 bytes at once, in order: RFC 7306's CmpSwap with a compare mask of zero
  // Work on this side only, carried out in order with the rest: see Host::carry_out_local().
  bind_window,
  local_invalidate,
};

[[nodiscard]] constexpr bool is_atomic(Operation operation) {
  return operation >= Operation::compare_swap && operation <= Operation::atomic_write;
}

// The request sends nothing. It changes the access rights to this side's own memory.
[[nodiscard]] constexpr bool is_local(Operation operation) {
  return operation >= Operation::bind_window;
}

// The peer responds with a message of its own.
[[nodiscard]] constexpr bool is_answered(Operation operation) {
  return operation == Operation::read || is_atomic(operation);
}

// The slices of the request are the sink of the response. For all other operations they are the
// source.
[[nodiscard]] constexpr bool fetches(Operation operation) {
  return is_answered(operation) && operation != Operation::atomic_write;
}

// The peer needs a posted receive for the message.
[[nodiscard]] constexpr bool takes_receive(Operation operation) {
  return operation < Operation::write || operation == Operation::write_immediate;
}

// One request for the send queue. The list of slices is copied when the request is posted. The
// memory that they name must live until the completion; with `inline_data` only until post()
// returns.
struct WorkRequest {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::send;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;        // wait for the responses to earlier reads and atomics
  bool inline_data = false;  // slices hold plain addresses; copied when posted, lkeys are ignored
  std::span<const LocalSlice> slices{};
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;            // write, read, atomics; send_invalidate: what to invalidate
  std::uint32_t immediate_be = 0;    // in network order, as the application passes it
  std::uint64_t compare_or_add = 0;  // atomics
  std::uint64_t swap = 0;
  // The peer's shared receive queue, where PeerFeatures::names_queues is set.
  std::uint32_t receive_queue = 0;
};

// How a request ended. The values mirror ibv_wc_status.
enum class Status : std::uint8_t {
  success,
  local_length,
  local_protection,
  local_operation,
  window_bind,
  flushed,
  remote_access,
  remote_invalid_request,
  remote_operation,
  retry_exceeded,
  rnr_retry_exceeded,
  bad_response,
};

struct SendCompletion {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::send;
  Status status = Status::success;
  bool signaled = true;
  std::uint32_t length_bytes = 0;
  // Requests that this completion covers: its own, and the unsignaled ones completed before it.
  std::uint32_t covered = 1;
};

struct ReceiveCompletion {
  std::uint64_t wr_id = 0;
  std::uint32_t queue = 0;  // ReceiveRequest::queue of the receive
  Status status = Status::success;
  std::uint32_t length_bytes = 0;  // of the Send, or of the Write that the immediate follows
  bool solicited = false;
  bool from_write = false;  // a Write with immediate
  bool has_immediate = false;
  std::uint32_t immediate_be = 0;
  bool has_invalidated = false;
  std::uint32_t invalidated_rkey = 0;
};

// What the peer asks to do with a region.
enum class RemoteRight : std::uint8_t { write, read, atomic };

// Why an access to memory is refused. The order is that of the error codes of RFC 5040 §4.8.
enum class Fault : std::uint8_t { none, invalid_stag, bounds, access, foreign_domain, wrap };

// Where memory is, or why it may not be accessed.
struct Memory {
  std::byte* at = nullptr;
  Fault fault = Fault::none;
};

// Limits of one connection's queues, fixed when the queue pair is created.
struct QueueLimits {
  std::uint32_t send_requests = 128;
  std::uint32_t send_slices = 4;     // per request
  std::uint32_t receive_slices = 4;  // per request
  std::uint32_t inline_bytes = 256;  // per request
};

// Why a connection stopped carrying traffic.
enum class EndReason : std::uint8_t {
  none,
  peer_closed,      // FIN or RST without a Terminate
  peer_terminated,  // a Terminate arrived
  terminated,       // we sent a Terminate
  local_error,      // one of our own requests failed, for example named memory it may not use
  local_close,      // Connection::close()
};

}  // namespace weft::iwarp
