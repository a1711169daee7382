// What is known of each connection itself; its traffic goes to a TrafficSink. The transports fill
// it in, reports read it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "weft/capture/host_address.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

enum class Transport : std::uint8_t { iwarp, rc, uc, ud, rd, xrc };
[[nodiscard]] WEFT_API const char* to_string(Transport transport);

struct Endpoint {
  HostAddress address;
  std::uint32_t number = 0;  // TCP port or queue pair number
  bool known = true;         // false: `number` was never seen, as only the other side sent
};

struct Connection {
  enum class Beginning : std::uint8_t {
    handshake,  // MPA request and reply, or the connection manager's messages
    traffic,    // recognised in mid-stream
  };
  enum class End : std::uint8_t {
    open,        // still, when the capture ended
    half_open,   // one side has closed
    closed,      // in order
    reset,       // TCP reset
    terminated,  // by a Terminate message or a fatal NAK
    rejected,    // the request was answered with a refusal
    unanswered,  // a request without an answer
  };
  // What one side said when the connection was made.
  struct Offer {
    bool seen = false;
    bool markers = false;       // it wants to receive markers (MPA)
    bool crc = false;           // it asks for CRCs (MPA)
    std::uint8_t revision = 0;  // of MPA
    bool has_depths = false;
    std::uint16_t ird = 0;  // reads and atomics that it takes at a time
    std::uint16_t ord = 0;  // and that it has under way at a time
    std::vector<std::byte> private_data;
  };

  ConnectionId id = 0;
  Transport transport = Transport::iwarp;
  Endpoint a{};  // see Side
  Endpoint b{};
  Beginning beginning = Beginning::handshake;
  End end = End::open;
  Offer offer_a{};
  Offer offer_b{};
  bool crc = false;             // MPA: CRCs are checked. InfiniBand: always
  std::uint32_t mtu_bytes = 0;  // of the path, where InfiniBand's connection manager told it
  Stamp first{};                // of its frames
  Stamp last{};
  std::uint64_t frames = 0;

  [[nodiscard]] const Endpoint& endpoint(Side side) const { return side == Side::a ? a : b; }
  [[nodiscard]] Offer& offer(Side side) { return side == Side::a ? offer_a : offer_b; }
};

[[nodiscard]] WEFT_API const char* to_string(Connection::End end);
// "10.0.0.1:4444", "10.0.0.1 QP 0x11"
[[nodiscard]] WEFT_API std::string endpoint_text(const Connection& connection, Side side);
// "NAK: remote access error"
[[nodiscard]] WEFT_API std::string refusal_text(const Refusal& refusal);

// All connections of a trace. References stay good until the end of the trace.
class ConnectionTable {
 public:
  // The caller fills in the rest; `id` is set here.
  Connection& add(Connection connection) {
    connection.id = static_cast<ConnectionId>(connections_.size());
    return connections_.emplace_back(std::move(connection));
  }
  [[nodiscard]] Connection& operator[](ConnectionId id) { return connections_[id]; }
  [[nodiscard]] const Connection& operator[](ConnectionId id) const { return connections_[id]; }
  [[nodiscard]] std::size_t size() const { return connections_.size(); }
  [[nodiscard]] auto begin() const { return connections_.begin(); }
  [[nodiscard]] auto end() const { return connections_.end(); }

 private:
  std::deque<Connection> connections_;
};

}  // namespace weft::capture
