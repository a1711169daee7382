// Conversations of two queue pairs, made packet by packet, in which every byte is known by its
// place (memory_byte() and message_byte() of made_capture.h; a message is numbered by its first
// PSN).
#pragma once

#include <cstdint>
#include <optional>

#include "capture/made_capture.h"
#include "weft/capture/ib_packet.hpp"
#include "wire/ib_cm.h"
#include "wire/ib_transport.h"

namespace weft::capture::test {

struct RoceOptions {
  enum class Carrier : std::uint8_t { ipv4, ipv6, v1, native, native_global };

  Carrier carrier = Carrier::ipv4;
  wire::IbTransport transport = wire::IbTransport::rc;
  std::size_t mtu_bytes = 256;
  std::uint8_t host_a = 2;
  std::uint8_t host_b = 1;
  std::uint32_t qp_a = 0x11;
  std::uint32_t qp_b = 0x11;
  std::uint32_t psn_a = 1'000;  // of its first request
  std::uint32_t psn_b = 2'000'000;
  std::uint64_t transaction = 0;  // of the connection manager's messages
};

class RoceTalk {
 public:
  RoceTalk(MadeCapture& capture, const RoceOptions& options)
      : capture_(capture), options_(options), a_{options.psn_a}, b_{options.psn_b} {}

  // REQ, REP, RTU; DREQ, DREP.
  void connect();
  void disconnect();
  void reject();

  void send(Side side, std::size_t bytes);
  void send(Side side, Bytes payload);
  void send_immediate(Side side, std::size_t bytes, std::uint32_t immediate);
  void write(Side side, std::uint32_t key, std::uint64_t address, std::size_t bytes);
  void write(Side side, std::uint32_t key, std::uint64_t address, Bytes payload);
  // The request and the other side's answer.
  void read(Side side, std::uint32_t key, std::uint64_t address, std::size_t bytes);
  void read(Side side, std::uint32_t key, std::uint64_t address, Bytes answer);
  // Each for itself; the PSN names the request.
  std::uint32_t read_request(Side side, std::uint32_t key, std::uint64_t address,
                             std::uint32_t bytes);
  void read_answer(Side side, std::uint32_t psn, Bytes answer);
  void fetch_add(Side side, std::uint32_t key, std::uint64_t address, std::uint64_t add,
                 std::uint64_t original);
  // Whether each request is followed by its acknowledgement, as it is at first.
  void acknowledge_all(bool yes) { acknowledges_ = yes; }
  // `side` acknowledges a PSN of the other.
  void acknowledge(Side side, std::uint32_t psn, const wire::Aeth& aeth = wire::Aeth::ack(0));

  // One packet, with all that its opcode needs in `headers`; queue pair, pad and ICRC are set here.
  void packet(Side side, wire::IbHeaders headers, Bytes payload = {});
  // What the next packets have as their pad, whatever their payload needs.
  void set_pad(std::uint8_t bytes) { pad_bytes_ = bytes; }
  // What the next packets have in the IP header: 3 is congestion experienced.
  void set_ecn(std::uint8_t ecn) { ecn_ = ecn; }
  // The UDP source port of the next packets.
  void set_source_port(std::uint16_t port) { source_port_ = port; }
  [[nodiscard]] std::uint32_t next_psn(Side side) const { return side == Side::a ? a_ : b_; }

 private:
  void message(Side side, wire::IbOperation first, wire::IbOperation only,
               const wire::IbHeaders& headers, Bytes payload);
  void datagram(Side side, wire::MadHeader mad, Bytes message);
  [[nodiscard]] wire::IbHeaders headers(wire::IbOperation operation, std::uint32_t psn) const;
  [[nodiscard]] Content network(Side side, std::size_t transport_bytes) const;
  std::uint32_t take_psns(Side side, std::uint64_t count);

  MadeCapture& capture_;
  RoceOptions options_;
  std::uint32_t a_;
  std::uint32_t b_;
  std::uint32_t datagrams_ = 0;
  std::uint8_t ecn_ = 0;
  std::uint16_t source_port_ = 0xC000;
  std::optional<std::uint8_t> pad_bytes_;
  bool acknowledges_ = true;
};

}  // namespace weft::capture::test
