#include "capture/traffic_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "capture/made_capture.h"

namespace weft::capture::test {

bool TrafficLog::Message::whole() const {
  return first_seen && last_seen && std::ranges::find(have, false) == have.end();
}

void TrafficLog::Message::place(std::uint64_t offset, Bytes part, std::uint64_t missing_bytes) {
  const std::size_t end = offset + part.size() + missing_bytes;
  if (bytes.size() < end) {
    bytes.resize(end);
    have.resize(end);
  }
  std::ranges::copy(part, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  std::fill_n(have.begin() + static_cast<std::ptrdiff_t>(offset), part.size(), true);
}

void TrafficLog::on_send(const Origin& origin, const SendPart& part) {
  Message& message = sends[{origin.connection, origin.side, part.message}];
  message.place(part.offset, part.bytes, part.missing_bytes);
  message.kind = part.kind;
  if (!part.last) return;
  message.last_seen = true;
  message.invalidated_key = part.invalidated_key;
  message.has_immediate = part.has_immediate;
  message.immediate = part.immediate;
}

void TrafficLog::on_write(const Origin& origin, const WritePart& part) {
  auto [found, fresh] = writes.try_emplace({origin.connection, origin.side, part.message});
  Message& message = found->second;
  EXPECT_TRUE(fresh || !part.first);
  if (fresh) {
    message.address = part.address;
    message.first_seen = part.first;
  }
  message.key = part.key;
  EXPECT_GE(part.address, message.address);
  message.place(part.address - message.address, part.bytes, part.missing_bytes);
  if (!part.last) return;
  message.last_seen = true;
  message.has_immediate = part.has_immediate;
  message.immediate = part.immediate;
}

void TrafficLog::on_read_request(const Origin& origin, const ReadRequest& request) {
  if (request.repeated) {
    ++repeated_requests;
    return;
  }
  Message& message = reads[{origin.connection, origin.side, request.request}];
  message.key = request.key;
  message.address = request.address;
  message.place(0, {}, request.length);
}

void TrafficLog::on_read_part(const Origin& origin, const ReadPart& part) {
  if (!part.known) {
    ++unknown_answers;
    return;
  }
  const auto found = reads.find({origin.connection, other(origin.side), part.request});
  ASSERT_NE(found, reads.end());
  Message& message = found->second;
  EXPECT_EQ(part.key, message.key);
  ASSERT_GE(part.address, message.address);
  ASSERT_LE(part.address + part.bytes.size(), message.address + message.bytes.size());
  message.place(part.address - message.address, part.bytes, part.missing_bytes);
  if (part.last) message.last_seen = true;
}

void TrafficLog::on_atomic_request(const Origin& /*origin*/, const AtomicRequest& request) {
  atomic_requests.push_back(request);
}

void TrafficLog::on_atomic_answer(const Origin& /*origin*/, const AtomicAnswer& answer) {
  atomic_answers.push_back(answer.original);
}

void TrafficLog::on_immediate(const Origin& /*origin*/, const ImmediateMessage& message) {
  immediates.emplace_back(message.bytes.begin(), message.bytes.end());
}

void TrafficLog::on_refusal(const Origin& /*origin*/, const Refusal& refusal) {
  refusals.push_back(refusal);
}

void TrafficLog::on_repeat(const Origin& /*origin*/, std::uint64_t wire_bytes) {
  repeated_bytes += wire_bytes;
}

void TrafficLog::on_gap(const Origin& /*origin*/, const Gap& gap) {
  lost_bytes += gap.wire_bytes;
  lost_packets += gap.packets;
}

void TrafficLog::on_violation(const Origin& /*origin*/, const Violation& violation) {
  violations.push_back(violation);
}

void TrafficLog::on_congestion(const Origin& /*origin*/, Congestion congestion) {
  ++(congestion == Congestion::marked ? congestion_marked : congestion_notified);
}

void TrafficLog::on_end(const Origin& /*origin*/, bool reset) {
  ++ends;
  if (reset) ++resets;
}

std::size_t OperationLog::count(Operation::Kind kind) const {
  return static_cast<std::size_t>(std::ranges::count(operations, kind, &Operation::kind));
}

void expect_known_bytes(const TrafficLog& log) {
  for (const auto& [key, message] : log.sends) {
    for (std::size_t i = 0; i < message.bytes.size(); ++i) {
      if (!message.have[i]) continue;
      ASSERT_EQ(message.bytes[i], message_byte(std::get<2>(key), i)) << "send, offset " << i;
    }
  }
  for (const auto* messages : {&log.writes, &log.reads}) {
    for (const auto& [key, message] : *messages) {
      for (std::size_t i = 0; i < message.bytes.size(); ++i) {
        if (!message.have[i]) continue;
        ASSERT_EQ(message.bytes[i], memory_byte(message.key, message.address + i))
            << (messages == &log.writes ? "write " : "read ") << std::get<2>(key) << " by "
            << (std::get<1>(key) == Side::a ? "a" : "b") << ", offset " << i << " at " << std::hex
            << message.address;
      }
    }
  }
}

}  // namespace weft::capture::test
