// Inbound data: RDMA Writes into granted memory, and the messages of queue 0 into posted receives.
#pragma once

#include <cstdint>
#include <vector>

#include "iwarp/host.h"
#include "iwarp/segment.h"
#include "wire/terminate.h"

namespace weft::iwarp {

class Receiver {
 public:
  explicit Receiver(Host& host) : host_(host) {}

  // An RDMA Write.
  [[nodiscard]] TerminateRaised check_write(const Segment& segment);
  [[nodiscard]] TerminateRaised write_targets(const Segment& segment, std::uint32_t offset,
                                              std::uint32_t length, std::vector<iovec>& out);
  void deliver_write(const Segment& segment);

  // A Send of any kind.
  [[nodiscard]] TerminateRaised check_send(const Segment& segment);
  [[nodiscard]] TerminateRaised send_targets(const Segment& segment, std::uint32_t offset,
                                             std::uint32_t length, std::vector<iovec>& out);
  [[nodiscard]] TerminateRaised deliver_send(const Segment& segment);

  // The immediate behind an RDMA Write (RFC 7306 §6).
  [[nodiscard]] TerminateRaised immediate(const Segment& segment,
                                          const wire::ImmediateData& immediate);

  // A zero-length Send that only says that the peer is ready: it has an MSN, and no receive.
  void skip_send() { ++expected_msn_; }

  // The stream ended: a receive that was taken and not filled completes so.
  void flush(Status status = Status::flushed);

 private:
  [[nodiscard]] TerminateRaised begin_message(const Segment& segment);
  [[nodiscard]] TerminateRaised fail_receive(Status status, wire::TerminateCode code);
  void complete(ReceiveCompletion completion);

  Host& host_;
  std::uint32_t expected_msn_ = 1;
  std::uint64_t expected_offset_ = 0;  // in the Send that is under way
  bool taken_ = false;                 // current_ holds a receive
  ReceiveRequest current_;
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t write_bytes_ = 0;  // of the last RDMA Write
  bool write_open_ = false;
};

}  // namespace weft::iwarp
