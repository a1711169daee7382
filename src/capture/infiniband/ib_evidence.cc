#include "capture/infiniband/ib_evidence.h"

#include <algorithm>
#include <cstdlib>

namespace weft::capture {
namespace {

using Operation = wire::IbOperation;

// How many requests and responses are kept. Directions that are not told apart by them have the
// same traffic, and more of it would not help.
constexpr std::size_t most_kept = 256;
// Two directions with PSNs that are further apart are never taken for each other, unless Reads
// explain the distance.
constexpr std::int32_t most_distant = 1 << 16;
constexpr std::uint64_t smallest_mtu_bytes = 256;
constexpr std::int32_t most_read_packets = 1 << 22;

bool close(const std::optional<std::uint32_t>& a, const std::optional<std::uint32_t>& b,
           std::int32_t read_packets) {
  return a && b && std::abs(wire::psn_distance(*a, *b)) < most_distant + read_packets;
}

}  // namespace

// The middle and the last packets of a Read response are left out, because their PSN is not that of
// the request, and may be far from it.
bool IbEvidence::add(const IbSegment& segment) {
  const Operation operation = segment.operation();
  if (!segment.is_answer()) {
    if (!first_request_) first_request_ = segment.psn();
    add_request(segment);
    return false;
  }
  const bool kept =
      operation == Operation::read_response_first || operation == Operation::read_response_only ||
      operation == Operation::atomic_acknowledge || operation == Operation::acknowledge;
  if (!kept) return false;
  if (!first_answer_) first_answer_ = segment.psn();
  if (answers_.size() >= most_kept) return false;
  const bool refuses =
      operation == Operation::acknowledge && segment.headers.aeth.kind() != wire::Aeth::Kind::ack;
  answers_.push_back(
      {segment.stamp.frame, segment.payload_wire_bytes, segment.psn(), operation, refuses});
  return true;
}

void IbEvidence::add_request(const IbSegment& segment) {
  const Operation operation = segment.operation();
  Request request{.frame = segment.stamp.frame};
  if (operation == Operation::read_request) {
    request.kind = Kind::read;
    request.bytes = segment.headers.reth.length_bytes;
    const auto packets = static_cast<std::int32_t>(request.bytes / smallest_mtu_bytes);
    read_packets_ = std::min(read_packets_ + packets, most_read_packets);
  } else if (operation == Operation::compare_swap || operation == Operation::fetch_add) {
    request.kind = Kind::atomic;
  }
  const bool asks = request.kind != Kind::data || segment.headers.bth.acknowledge_request;
  if ((asks ? asking_ : requests_.size() - asking_) >= most_kept) return;
  if (requests_.try_emplace(segment.psn(), request).second && asks) ++asking_;
}

bool IbEvidence::has_all_requests() const {
  return asking_ < most_kept && requests_.size() - asking_ < most_kept;
}

// An acknowledgement may name any PSN again, so it never conflicts.
bool IbEvidence::conflict(const Request& request, const Answer& answer) {
  switch (answer.operation) {
    case Operation::read_response_first:
      return request.kind != Kind::read || answer.bytes >= request.bytes;
    case Operation::read_response_only:
      return request.kind != Kind::read || answer.bytes != request.bytes;
    case Operation::atomic_acknowledge:
      return request.kind != Kind::atomic;
    default:
      return false;
  }
}

bool IbEvidence::doubtful(const Request& request, const Answer& answer) {
  const bool other_kind =
      answer.operation == Operation::acknowledge && !answer.refuses && request.kind != Kind::data;
  return other_kind || request.frame > answer.frame;
}

IbEvidence::Fit IbEvidence::fit(const IbEvidence& requester) const {
  Fit fit;
  for (const Answer& answer : answers_) {
    const auto found = requester.requests_.find(answer.psn);
    if (found == requester.requests_.end()) {
      // A refusal may name a request that was lost before the capture, or within a Read.
      if (requester.has_all_requests() && !answer.refuses) ++fit.doubts;
      continue;
    }
    if (conflict(found->second, answer)) {
      ++fit.conflicts;
      return fit;
    }
    ++fit.matches;
    if (doubtful(found->second, answer)) ++fit.doubts;
  }
  return fit;
}

bool IbEvidence::resembles(const IbEvidence& same_direction) const {
  const std::int32_t packets = std::max(read_packets_, same_direction.read_packets_);
  return close(first_request_, same_direction.first_request_, packets) ||
         close(first_answer_, same_direction.first_answer_, packets);
}

bool IbEvidence::may_fit(const IbEvidence& other_direction) const {
  return close(first_answer_, other_direction.first_request_, other_direction.read_packets_) ||
         close(first_request_, other_direction.first_answer_, read_packets_);
}

}  // namespace weft::capture
