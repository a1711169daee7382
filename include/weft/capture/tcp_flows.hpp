// The TCP connections of a capture: finds the one of each segment, and gives both directions of it
// to whoever reads them.
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

// Side a is who asked for the connection, where that was seen, else who sent first.
struct TcpEndpoints {
  HostAddress address_a;
  HostAddress address_b;
  std::uint16_t port_a = 0;
  std::uint16_t port_b = 0;
};

// Who takes the two streams of a connection. Positions count the bytes of a side's stream and never
// wrap; spans are valid during the call only.
class TcpReader {
 public:
  virtual ~TcpReader() = default;
  // `from_the_start`: of the side's stream, as its SYN was seen. Told before its first byte.
  virtual void on_start(Side side, bool from_the_start) = 0;
  // In order of `position`, without gaps but for those that on_hole() tells.
  virtual void on_bytes(Side side, const Stamp& stamp, std::uint64_t position, Bytes bytes) = 0;
  virtual void on_hole(Side side, const Stamp& stamp, std::uint64_t position,
                       std::uint64_t bytes) = 0;
  virtual void on_repeat(Side side, const Stamp& stamp, std::uint64_t bytes) = 0;
  // `side` has received everything of the other one before `position`.
  virtual void on_received(Side side, const Stamp& stamp, std::uint64_t position) = 0;
  // A packet of the connection, before anything that is in it.
  virtual void on_packet(const Stamp& stamp) = 0;
  // `side` will send no more.
  virtual void on_finished(Side side, const Stamp& stamp) = 0;
  virtual void on_reset(Side side, const Stamp& stamp) = 0;
  // Nothing more comes: the connection is over, forgotten, or the capture is at its end.
  virtual void on_end(const Stamp& stamp) = 0;
  // Whether it has found that this connection does not concern it.
  [[nodiscard]] virtual bool indifferent() const = 0;
};

class WEFT_API TcpFlows final : public TcpSegments {
 public:
  struct Limits {
    TcpStream::Limits stream;
    std::size_t flows = 65'536;                 // known at a time; the longest silent one goes
    std::size_t held_bytes = 64 * 1024 * 1024;  // out of order, of all flows
  };
  // Makes a reader for a connection whose first packet was seen.
  using MakeReader = std::function<std::unique_ptr<TcpReader>(const TcpEndpoints&)>;
  // Whether the beginning of a segment makes an indifferent reader's connection worth a new look.
  using LooksNew = bool (*)(Bytes payload);

  // Owns the readers that make_reader returns.
  TcpFlows(const Limits& limits, MakeReader make_reader, LooksNew looks_new);
  ~TcpFlows() override;

  void on_segment(const TcpSegment& segment) override;
  void finish() override;
  // As if nothing more came of this connection; a later segment begins another one.
  void forget(const TcpEndpoints& endpoints);

  // Seen in all, and of those forgotten because of Limits::flows.
  [[nodiscard]] std::uint64_t connections() const { return connections_; }
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
  Entries entries_;  // the one used last stands first
  std::unordered_map<Key, Entries::iterator, KeyHash> index_;
  std::uint64_t connections_ = 0;
  std::uint64_t forgotten_ = 0;
  Stamp now_;
};

}  // namespace weft::capture
