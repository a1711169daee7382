// Captures made for a test: packets in memory, from TCP conversations and iWARP connections that a
// test writes down step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "support/fpdu.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/packet_source.hpp"
#include "weft/capture/traffic.hpp"
#include "wire/mpa.h"

namespace weft::capture::test {

using weft::test::Content;
using weft::test::Ulpdu;

struct MadePacket {
  std::int64_t time_ns = 0;
  Content bytes{};
  std::size_t wire_bytes = 0;
  std::uint16_t link_type = 1;
  std::size_t number = 0;  // in the capture that was altered: see alterations.h
};
using MadeCapture = std::vector<MadePacket>;

// Puts it through a new analysis, with these sinks.
void analyse(const MadeCapture& capture, TrafficSink* traffic, OperationSink* operations = nullptr);
void feed(Analysis& analysis, const MadeCapture& capture);
// As a file: little-endian pcap with nanoseconds.
[[nodiscard]] Content pcap_file(const MadeCapture& capture);
// Keeps `snap_bytes` of each packet.
[[nodiscard]] MadeCapture cut(MadeCapture capture, std::size_t snap_bytes);

struct TcpOptions {
  bool ipv6 = false;
  std::uint16_t port_a = 40'000;
  std::uint16_t port_b = 7'000;
  std::uint8_t host_a = 2;  // the last byte of the address
  std::uint8_t host_b = 1;
  std::uint32_t first_a = 1'000;  // sequence number of the SYN
  std::uint32_t first_b = 500'000;
  std::size_t mss_bytes = 1'448;
};

// Each side acknowledges what the other has sent, in its next segment.
class TcpTalk {
 public:
  TcpTalk(MadeCapture& capture, const TcpOptions& options)
      : capture_(capture), options_(options), a_{options.first_a}, b_{options.first_b} {}

  void handshake();
  // In segments of mss_bytes at most.
  void send(Side side, Bytes bytes);
  // One segment, whatever its size.
  void segment(Side side, Bytes bytes, std::uint8_t flags);
  void acknowledge(Side side);
  void finish(Side side);
  void reset(Side side);
  [[nodiscard]] std::size_t mss_bytes() const { return options_.mss_bytes; }

 private:
  struct Half {
    std::uint32_t next = 0;  // sequence number
  };

  [[nodiscard]] Content frame(Side side, std::uint8_t flags, Bytes payload);

  MadeCapture& capture_;
  TcpOptions options_;
  Half a_;
  Half b_;
};

struct MpaOptions {
  bool crc = true;
  bool markers_a = false;  // a wants to receive them
  bool markers_b = false;
  std::uint8_t revision = 2;
  bool aligned = true;  // each FPDU begins a segment
  bool reject = false;  // b rejects the request
  // Both sides are Weft devices that offer control words: wire::MpaFrame::words.
  bool words_a = false;
  bool words_b = false;
  // The private data.
  Content hello_a{};
  Content hello_b{};
};

// Adds FPDUs to a conversation, with what has been agreed on.
class IwarpTalk {
 public:
  IwarpTalk(MadeCapture& capture, const TcpOptions& tcp, const MpaOptions& mpa)
      : tcp_(capture, tcp), mpa_(mpa) {}

  // TCP's handshake, and MPA's.
  void connect();
  void fpdu(Side side, const Ulpdu& ulpdu);
  // Whatever was kept back because FPDUs are not aligned.
  void flush(Side side);
  void close();
  [[nodiscard]] TcpTalk& tcp() { return tcp_; }

 private:
  struct Half {
    std::uint64_t position = 0;  // of the FPDU stream
    Content unsent;
  };

  TcpTalk tcp_;
  MpaOptions mpa_;
  Half a_;
  Half b_;
};

// --- A conversation in which every byte is known by its place
// -------------------------------------

// What stands at an address of the memory with this key, and at an offset of a Send.
[[nodiscard]] std::byte memory_byte(std::uint32_t key, std::uint64_t address);
[[nodiscard]] std::byte message_byte(std::uint64_t message, std::uint64_t offset);
[[nodiscard]] Content memory_bytes(std::uint32_t key, std::uint64_t address, std::size_t bytes);
[[nodiscard]] Content message_bytes(std::uint64_t message, std::size_t bytes);

// Operations of one side with such bytes.
class Operator {
 public:
  // `one_sink`: all Reads place their answers into the same memory, one after the other.
  Operator(IwarpTalk& talk, Side side, bool one_sink = false, std::size_t mulpdu_bytes = 1'000)
      : talk_(talk), side_(side), one_sink_(one_sink), mulpdu_bytes_(mulpdu_bytes) {}

  void send(std::size_t bytes);
  void write(std::uint32_t key, std::uint64_t address, std::size_t bytes);
  // The request, and the other side's answer.
  void read(std::uint32_t key, std::uint64_t address, std::size_t bytes);
  void fetch_add(std::uint32_t key, std::uint64_t address, std::uint64_t add,
                 std::uint64_t original);
  [[nodiscard]] std::uint32_t sends() const { return sends_; }

 private:
  IwarpTalk& talk_;
  Side side_;
  bool one_sink_;
  std::size_t mulpdu_bytes_;
  std::uint32_t sends_ = 0;
  std::uint32_t requests_ = 0;
  std::uint32_t atomic_answers_ = 0;
};

}  // namespace weft::capture::test
