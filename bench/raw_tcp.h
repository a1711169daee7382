// What raw TCP takes between the two processes of run_pair(): the limit of a device over TCP.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::bench {

double seconds_since(std::uint64_t start_ns);

// Of several measurements; p99: 99 of 100 are at most that.
enum class Figure { average, median, p99 };

// Half a round trip of `bytes` bytes in microseconds. Both sides poll.
double raw_latency(std::size_t bytes, int iterations, Figure figure);
// The same where both sides sleep in recv(2).
double raw_sleeping_latency(std::size_t bytes, int iterations, Figure figure);
// Messages per second of `bytes` bytes each, with one system call per message.
double raw_rate(std::size_t bytes, int messages);
// TCP connections per second that one process makes and the other one accepts, and that stay open.
double raw_connect_rate(int connections);
// Messages of eight bytes per second that go to `connections` connections in turn, each of which
// answers with eight bytes. At most 2 048 are under way; both sides poll an epoll set.
double raw_turn_rate(int connections, int messages);

}  // namespace weft::bench
