// The TCP connections of a capture: finds the connection of each segment, and delivers both
// directions to a TcpReader.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

#include "weft/bytes.hpp"
#include "weft/capture/budget.hpp"
#include "weft/capture/tcp_segment.hpp"
#include "weft/capture/tcp_stream.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// Side a is the side that sent the SYN, if that was captured, otherwise the one that sent first.
struct TcpEndpoints {
  HostAddress address_a;
  HostAddress address_b;
  std::uint16_t port_a = 0;
  std::uint16_t port_b = 0;
};

// Receives the two streams of a connection. Positions count the bytes of a side's stream and never
// wrap. Spans are valid during the call only.
class TcpReader {
 public:
  virtual ~TcpReader() = default;
  // Called before the first byte of a side. `from_the_start` is true if its SYN was captured.
  virtual void on_start(Side side, bool from_the_start) = 0;
  // Bytes come in order of `position`, without gaps other than those that on_hole() reports.
  virtual void on_bytes(Side side, const Stamp& stamp, std::uint64_t position, Bytes bytes) = 0;
  // The bytes from `position` on, as many as `hole` says, are not in the capture.
  virtual void on_hole(Side side, const Stamp& stamp, std::uint64_t position, const Hole& hole) = 0;
  // A segment of `side` has repeated `bytes` bytes of payload that came before.
  virtual void on_repeat(Side side, const Stamp& stamp, std::uint64_t bytes) = 0;
  // The TCP of `side` has acknowledged all bytes of the other side before `position`.
  virtual void on_received(Side side, const Stamp& stamp, std::uint64_t position) = 0;
  // The window of `side` was closed (0 bytes), or has opened again.
  virtual void on_window(Side /*side*/, const Stamp& /*stamp*/, bool /*open*/) {}
  // A segment of this side only asks whether the closed window of the other side is open again.
  virtual void on_window_probe(Side /*side*/, const Stamp& /*stamp*/) {}
  // The segments of `side` take another path than before.
  virtual void on_path_change(Side /*side*/, const Stamp& /*stamp*/, const PathChange&) {}
  // Called for each packet of the connection, before its content. `side` has sent it.
  virtual void on_packet(Side side, const Stamp& stamp) = 0;
  // A segment of `side` came after later ones: it was on another path, or it is a retransmission of
  // a segment that was lost before the capture. `delay_ns` is the time since the later one.
  virtual void on_late(Side side, const Stamp& stamp, std::int64_t delay_ns) = 0;
  // `side` has closed its direction (FIN).
  virtual void on_finished(Side side, const Stamp& stamp) = 0;
  // `side` has reset the connection (RST). All bytes that waited were delivered before. Called at
  // most once, and not after both sides have closed their directions.
  virtual void on_reset(Side side, const Stamp& stamp) = 0;
  // Nothing more follows: the connection ended, was forgotten, or the capture ended.
  virtual void on_end(const Stamp& stamp) = 0;
  // Returns true if the reader has found that it has no interest in this connection.
  [[nodiscard]] virtual bool indifferent() const = 0;
};

class WEFT_API TcpFlows final : public TcpSegments {
 public:
  struct Limits {
    TcpStream::Limits stream;
    // Connections at a time; above the limit the one that was idle for longest is forgotten.
    std::size_t flows = 65'536;
    std::size_t held_bytes = 64 * 1024 * 1024;  // out-of-order segments of all flows
  };
  // Creates the reader of a connection when its first packet is seen.
  using MakeReader = std::function<std::unique_ptr<TcpReader>(const TcpEndpoints&)>;
  // Returns whether the beginning of a segment shows that a connection with an uninterested reader
  // begins anew.
  using LooksNew = bool (*)(Bytes payload);

  // The TcpFlows owns the readers that make_reader returns.
  TcpFlows(const Limits& limits, MakeReader make_reader, LooksNew looks_new);
  ~TcpFlows() override;

  // Passes a segment to the reader of its connection, and creates the reader for the first segment
  // of one. The calls of readers are within this call.
  void on_segment(const TcpSegment& segment) override;
  void finish() override;
  // Ends the connection as if nothing more came; a later segment begins a new one.
  void forget(const TcpEndpoints& endpoints);

  // Returns the number of connections so far.
  [[nodiscard]] std::uint64_t connections() const { return connections_; }
  // Returns how many of them were forgotten because of Limits::flows. A later segment of such a
  // connection counts as a new one.
  [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }

 private:
  struct Key {
    HostAddress low;
    HostAddress high;
    std::uint16_t low_port = 0;
    std::uint16_t high_port = 0;

    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  class Flow;
  struct Entry {
    Key key;
    std::unique_ptr<Flow> flow;
  };
  using Entries = std::list<Entry>;

  static Key key_of(const TcpSegment& segment);
  static Key key_of(const TcpEndpoints& endpoints);
  Entries::iterator find(const Key& key);
  [[nodiscard]] std::unique_ptr<Flow> make_flow(const TcpSegment& segment);
  void forget(Entries::iterator entry);

  Limits limits_;
  Budget budget_;
  MakeReader make_reader_;
  LooksNew looks_new_;
  Entries entries_;  // most recently used first
  std::unordered_map<Key, Entries::iterator, KeyHash> index_;
  std::uint64_t connections_ = 0;
  std::uint64_t forgotten_ = 0;
  Stamp now_;
};

}  // namespace weft::capture
