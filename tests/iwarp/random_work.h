// Random work of one side towards the other, with a model of what it must lead to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/fpdu.h"
#include "support/pair.h"
#include "support/random.h"

namespace weft::test {

class RandomWork {
 public:
  enum class Receives { at_once, late };

  // `self` posts, `peer` is written to, read from and sent to.
  RandomWork(Random& random, Endpoint& self, Endpoint& peer, std::size_t requests,
             Receives receives = Receives::at_once);

  // Some of the Sends carry an immediate: the connection must know how.
  void use_send_immediate() { send_immediate_ = true; }
  // After this many requests comes one that the peer must refuse.
  void set_fault(std::size_t after) { fault_after_ = after; }

  [[nodiscard]] bool all_posted() const { return posted_.size() == requests_; }
  [[nodiscard]] std::size_t posted() const { return posted_.size(); }
  // Posts one request, unless the queue is full.
  void post_one();
  // Posts up to `most` of the receives that were left for later. Returns how many.
  std::size_t post_receives(std::size_t most);

  // Every posted request has succeeded, and both memories are as the model has them.
  void check_success() const;
  // Holds whatever went wrong: each completion comes once, in order, after the first error only
  // flushes follow, and what was received is what was sent.
  void check_consistent() const;
  // check_consistent(), and the peer's refusal is reported for the request that it refused: the one
  // that was wrong, or the first that found no receive.
  void check_blame() const;
  // A completed Send has been received, a completed Write has been placed (where acknowledged).
  void check_placed() const;

 private:
  struct Posted {
    std::uint64_t wr_id = 0;
    iwarp::Operation operation = iwarp::Operation::send;
    bool signaled = true;
    std::size_t receives_before = 0;  // receives of the peer that precede or belong to it
    std::size_t target_offset = 0;
    Content written;
  };
  struct Expected {  // a receive of the peer
    Content content;
    bool solicited = false;
    bool from_write = false;
    bool has_immediate = false;
    std::uint32_t immediate = 0;
    std::uint32_t length = 0;
  };

  [[nodiscard]] std::size_t random_size();
  bool post(iwarp::WorkRequest request, std::span<const iwarp::LocalSlice> slices);
  [[nodiscard]] std::vector<iwarp::LocalSlice> random_slices(const Region& region,
                                                             std::size_t offset, std::size_t size);
  void post_send(iwarp::WorkRequest request);
  void post_write(iwarp::WorkRequest request);
  void post_read(iwarp::WorkRequest request);
  void post_atomic(iwarp::WorkRequest request);
  void post_fault(iwarp::WorkRequest request);
  void check_receives(std::size_t count) const;

  static constexpr std::size_t largest = 150'000;
  static constexpr std::size_t receive_bytes = largest + 16;
  static constexpr std::size_t sink_bytes = 700'000;

  Random& random_;
  Endpoint& self_;
  Endpoint& peer_;
  std::size_t requests_;
  Region& source_;   // ours, to send and write from
  Region& sink_;     // ours, to read into
  Region& target_;   // the peer's, to write to
  Region& origin_;   // the peer's, to read from
  Region& counter_;  // the peer's
  std::size_t sink_used_ = 0;
  bool send_immediate_ = false;
  std::size_t fault_after_ = SIZE_MAX;

  std::vector<Posted> posted_;
  std::vector<Expected> expected_;
  Content target_model_;
  Content sink_model_;
  std::uint64_t counter_model_ = 0;
  std::vector<Region*> receive_regions_;
  std::vector<std::vector<iwarp::LocalSlice>> late_receives_;
  std::size_t receives_posted_ = 0;
};

}  // namespace weft::test
