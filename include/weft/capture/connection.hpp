// What is known about each connection itself; its traffic goes to a TrafficSink. The transports
// fill these structures in, and the reports read them.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "weft/capture/connection_map.hpp"
#include "weft/capture/host_address.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

enum class Transport : std::uint8_t { iwarp, rc, uc, ud, rd, xrc };
// Returns "iWARP", "RC", "UC", "UD", "RD" or "XRC". The text is in static storage.
[[nodiscard]] WEFT_API const char* to_string(Transport transport);

struct Endpoint {
  HostAddress address;
  std::uint32_t number = 0;  // TCP port or queue pair number
  bool known = true;         // false: `number` was never seen, because only the other side sent
};

struct Connection {
  enum class Beginning : std::uint8_t {
    handshake,  // MPA request and reply, or messages of the connection manager
    traffic,    // recognised in the middle of the stream
  };
  enum class End : std::uint8_t {
    open,        // still open when the capture ended
    half_open,   // only one side closed it
    closed,      // both sides closed it
    reset,       // by a TCP reset
    terminated,  // by a Terminate message or a fatal NAK
    rejected,    // the reply rejected the request
    unanswered,  // the request got no reply
    forgotten,   // dropped because of the limit on connections; it may still be open
  };
  // The parameters that one side sent in the handshake.
  struct Offer {
    bool seen = false;
    bool markers = false;       // this side wants to receive markers (MPA)
    bool crc = false;           // this side requests CRCs (MPA)
    std::uint8_t revision = 0;  // MPA revision
    bool has_depths = false;
    std::uint16_t ird = 0;  // reads and atomics that this side accepts at a time
    std::uint16_t ord = 0;  // reads and atomics that this side has outstanding at a time
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
  bool crc = false;                 // MPA: CRCs are checked. InfiniBand: always true
  std::uint16_t reject_reason = 0;  // of InfiniBand's REJ: see reject_reason_text()
  std::uint32_t mtu_bytes = 0;      // path MTU, if InfiniBand's connection manager sent it
  // InfiniBand: without an answer for so long, the requester repeats its request. 0: unknown.
  std::int64_t answer_within_ns = 0;
  Stamp first{};  // first and last frame of the connection
  Stamp last{};
  std::uint64_t frames = 0;
  std::array<std::uint64_t, 2> side_frames{};  // by sender, without the connection manager's
  // Messages of the devices of two Weft programs to each other, which are no operations.
  std::uint64_t control_words = 0;

  // Returns the address and the number of one side. The reference is valid as long as this object.
  [[nodiscard]] const Endpoint& endpoint(Side side) const { return side == Side::a ? a : b; }
  // Returns the handshake parameters of one side, which the caller may change. The reference is
  // valid as long as this object.
  [[nodiscard]] Offer& offer(Side side) { return side == Side::a ? offer_a : offer_b; }
};

// Returns the name of the enumerator, with a hyphen between words: "open", "half-open", "closed".
// The text is in static storage.
[[nodiscard]] WEFT_API const char* to_string(Connection::End end);
// Returns whether the capture has packets of one side only, and not just of the beginning.
[[nodiscard]] WEFT_API bool lacks_direction(const Connection& connection);
// Returns "10.0.0.1:4444" or "10.0.0.1 QP 0x11".
[[nodiscard]] WEFT_API std::string endpoint_text(const Connection& connection, Side side);
// Returns for example "NAK: remote access error".
[[nodiscard]] WEFT_API std::string refusal_text(const Refusal& refusal);

// The connections of a trace. A reference stays valid until its connection is forgotten, which
// happens when there are more than Analysis::Limits::connections.
class ConnectionTable {
 public:
  // Iterates over the connections in the table, ordered by id.
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Connection;
    using difference_type = std::ptrdiff_t;
    using pointer = const Connection*;
    using reference = const Connection&;

    // Creates an iterator without a position. It must be assigned to before it is used.
    Iterator() = default;
    // Returns the connection. The reference is valid until the connection is forgotten.
    reference operator*() const { return at_->second; }
    // Returns a pointer to the connection, which is valid as long as the reference.
    pointer operator->() const { return &at_->second; }
    // Moves to the connection with the next higher id.
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    // Moves on in the same way, and returns the position before.
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    friend ConnectionTable;
    using Position = decltype(std::declval<const ConnectionMap<Connection>&>().begin());
    explicit Iterator(Position at) : at_(at) {}
    Position at_{};
  };

  // Adds a connection and sets its `id`; the caller fills in the other fields.
  Connection& add(Connection connection) {
    const ConnectionId id = next_++;
    connection.id = id;
    return connections_.get(id, std::move(connection));
  }
  // The connection must be in the table.
  [[nodiscard]] Connection& operator[](ConnectionId id) { return *connections_.find(id); }
  [[nodiscard]] const Connection& operator[](ConnectionId id) const {
    return *connections_.find(id);
  }
  // Returns nullptr if the connection was forgotten.
  [[nodiscard]] const Connection* find(ConnectionId id) const { return connections_.find(id); }
  // Removes a connection, and adds its frames to forgotten_frames(). References and iterators to it
  // become invalid. Does nothing if it is not in the table.
  void forget(ConnectionId id) {
    const Connection* known = find(id);
    if (known == nullptr) return;
    forgotten_frames_ += known->frames;
    connections_.erase(id);
  }
  // Removes what was taken for a connection, but has turned out to be a part of another one. size()
  // and forgotten() do not count it any more.
  void withdraw(ConnectionId id) {
    if (find(id) != nullptr) ++withdrawn_;
    connections_.erase(id);
  }
  // Connections of the whole trace, including forgotten ones.
  [[nodiscard]] std::size_t size() const { return next_ - withdrawn_; }
  // Returns the number of connections in the table.
  [[nodiscard]] std::size_t known() const { return connections_.size(); }
  // Returns the number of forgotten connections.
  [[nodiscard]] std::size_t forgotten() const { return size() - known(); }
  // Frames of the forgotten connections.
  [[nodiscard]] std::uint64_t forgotten_frames() const { return forgotten_frames_; }
  // Returns the position of the connection with the lowest id. An iterator is valid until its
  // connection is forgotten, and connections may be added meanwhile.
  [[nodiscard]] Iterator begin() const { return Iterator(connections_.begin()); }
  // Returns the position after the last connection.
  [[nodiscard]] Iterator end() const { return Iterator(connections_.end()); }

 private:
  ConnectionMap<Connection> connections_;
  ConnectionId next_ = 0;
  std::size_t withdrawn_ = 0;
  std::uint64_t forgotten_frames_ = 0;
};

}  // namespace weft::capture
