// Rules of faults: what a user wants to fail on purpose, and when. `weft help faults` describes the
// language in which they are written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::faults {

// The places at which something can fail.
enum class Point : std::uint8_t {
  // Calls, which return an errno value.
  post_send,
  post_receive,
  open_device,
  allocate_domain,
  register_memory,
  allocate_window,
  create_channel,
  create_completion_queue,
  create_shared_receive_queue,
  create_queue_pair,
  create_address_handle,
  modify_queue_pair,
  // Work requests, which complete with a status. `request` is each of the four before it.
  send,
  write,
  read,
  atomic,
  request,
  receive,
  // The steps of connecting: rdma_cm(7) at the active and the passive side, and queue pairs that
  // find each other by number.
  resolve_address,
  resolve_route,
  connect,
  connect_request,
  pair,
  // A connection that carries requests.
  connection,
  // The end of a connection of rdma_cm(7).
  disconnect,
  // A message that needs a receive, at the queue pair that it arrives at.
  arrival,
  // What a queue pair puts into a completion queue.
  completion,
  // The device, which raises an asynchronous event.
  device,
};
inline constexpr std::size_t point_count = static_cast<std::size_t>(Point::device) + 1;

// What is returned, reported or raised at a point.
enum class ActionKind : std::uint8_t {
  call_error,      // an errno value
  request_status,  // an ibv_wc_status
  device_event,    // an ibv_event_type
  failure,         // a Failure
};

// What happens to a connection.
enum class Failure : std::uint8_t {
  address_error,  // each of these four is an event of rdma_cm, and the argument is its status
  route_error,
  reject,
  unreachable,
  connect_error,
  silence,  // nothing is answered, or nothing is sent and received any more
  delay,    // the argument is in nanoseconds
  fin,      // of these the connection ends
  rst,
  terminate,  // the argument is layer << 16 | type << 8 | code (RFC 5040 §4.8)
  stall,      // the argument is in nanoseconds
  bit_flip,
  not_ready,  // the argument is in nanoseconds, 0: for ever
  timewait,   // the argument is in nanoseconds
  overrun,
  queue_pair_fatal,
};

struct Action {
  ActionKind kind = ActionKind::call_error;
  int value = 0;
  std::int64_t argument = 0;  // of a Failure

  [[nodiscard]] Failure failure() const { return static_cast<Failure>(value); }
};

// Which end of a connection of rdma_cm(7) this device is: the one that connects, or the one that
// accepts. Queue pairs that find each other by number have no sides.
enum class Side : std::uint8_t { none, active, passive };

// The last 16 bytes of an address, as in a GID; IPv4 addresses are mapped into IPv6.
using PeerAddress = std::array<std::uint8_t, 16>;

// One rule. An occurrence of the point counts for it if it meets the conditions of the second
// group; the first group chooses among those that count.
struct Rule {
  Point point = Point::request;
  Action action;

  std::uint64_t nth = 0;    // this one only, from 1; 0: no such condition
  std::uint64_t every = 0;  // each one whose number is a multiple; 0: no such condition
  double probability = 1;   // of each one
  std::uint64_t times = 0;  // the most faults; 0: no limit

  std::uint64_t after_ns = 0;     // since the device was opened, or the connection began
  std::uint64_t after_bytes = 0;  // of requests that met the other conditions, or of the connection
  std::optional<std::uint32_t> queue_pair;
  std::optional<PeerAddress> peer;
  Side side = Side::none;  // none: no such condition
  std::string process;     // the name of the program; empty: any

  std::string text;  // as the user wrote it
};

struct Rules {
  std::vector<Rule> list;
  std::optional<std::uint64_t> seed;
};

// Reads rules that are separated by semicolons or line ends. "@FILE" in the place of a rule stands
// for the rules in that file. The error is several lines: what is wrong, the rule, and a caret
// below the place.
[[nodiscard]] Result<Rules, std::string> parse(std::string_view text);

}  // namespace weft::faults
