// What one direction of two queue pairs has sent so far, as evidence for its other direction: a
// packet names only the queue pair of its receiver, so without the connection manager two
// directions are joined because one answers what the other has requested.
//
// PSNs alone are not enough: many programs begin all of their queue pairs with the same PSN. A
// response must also be of the kind of its request and, for an RDMA Read, have its length. Among
// directions that fit equally well, the one is preferred whose requests were captured before their
// responses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/infiniband/ib_segment.h"

namespace weft::capture {

class IbEvidence {
 public:
  // How the responses of one direction fit the requests of another one.
  struct Fit {
    std::size_t matches = 0;    // responses to a request of the other direction
    std::size_t doubts = 0;     // of the requests, some were captured later, or not at all
    std::size_t conflicts = 0;  // the request is of another kind, or has another length

    Fit& operator+=(const Fit& other) {
      matches += other.matches;
      doubts += other.doubts;
      conflicts += other.conflicts;
      return *this;
    }
  };

  // Takes a packet of the direction. Returns whether it is a response that was kept: only the first
  // ones are.
  bool add(const IbSegment& segment);
  // Returns how the responses of this direction fit the requests of `requester`. Stops at the first
  // conflict.
  [[nodiscard]] Fit fit(const IbEvidence& requester) const;
  // Return whether PSNs are so close that one of these directions could be taken for the other, or
  // for the one that belongs to it.
  [[nodiscard]] bool resembles(const IbEvidence& same_direction) const;
  [[nodiscard]] bool may_fit(const IbEvidence& other_direction) const;
  [[nodiscard]] std::size_t answers() const { return answers_.size(); }

 private:
  enum class Kind : std::uint8_t { data, read, atomic };
  struct Request {
    std::uint64_t frame = 0;
    std::uint64_t bytes = 0;  // that a Read asks for
    Kind kind = Kind::data;
  };
  struct Answer {
    std::uint64_t frame = 0;
    std::uint64_t bytes = 0;  // payload
    std::uint32_t psn = 0;
    wire::IbOperation operation = wire::IbOperation::acknowledge;
    bool refuses = false;
  };

  [[nodiscard]] static bool conflict(const Request& request, const Answer& answer);
  [[nodiscard]] static bool doubtful(const Request& request, const Answer& answer);
  void add_request(const IbSegment& segment);
  [[nodiscard]] bool has_all_requests() const;

  // By PSN. Of those that ask for an answer as many are kept as of the others: there are fewer of
  // them, and answers name them.
  std::unordered_map<std::uint32_t, Request> requests_;
  std::size_t asking_ = 0;
  std::vector<Answer> answers_;
  std::int32_t read_packets_ = 0;  // that the requested Reads may have in their responses
  std::optional<std::uint32_t> first_request_;
  std::optional<std::uint32_t> first_answer_;
};

}  // namespace weft::capture
