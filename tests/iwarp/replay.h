// Puts the protocol core in the place of one side of a stored connection. The other side is
// replayed as it was recorded; STags, addresses, MPA parameters and private data are those of the
// capture. This side's application posts what the recording shows, so the core must send the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "flow.h"
#include "iwarp/connection.h"
#include "support/memory_host.h"

namespace weft::test {

class Replay {
 public:
  struct Choices {
    std::size_t mulpdu_bytes = 1442;
    std::size_t receive_bytes = 70'000;
    // A Terminate of the recorded side is not repeated, since that side made mistakes of its own.
    bool without_terminates = false;
    // Completions wait for proofs. The recorded side did not, so it sent less.
    bool acknowledge = false;
  };

  Replay(const Flow& flow, Side side, const Choices& choices);
  Replay(const Flow& flow, Side side) : Replay(flow, side, Choices{}) {}

  // Memory that the recorded side had registered, of which the traffic shows only parts.
  void add_memory(std::uint32_t stag, std::uint64_t address, Bytes content);
  // Replays everything; `after_record` sees the state after each record of the other side.
  void run(const std::function<void()>& after_record = [] {});
  // This side must have sent what was recorded, segment for segment.
  void check_sent() const;

  [[nodiscard]] Region& region(std::uint32_t stag);
  [[nodiscard]] const std::vector<Ulpdu>& sent() const { return sent_; }
  [[nodiscard]] std::vector<Ulpdu> recorded() const;
  [[nodiscard]] iwarp::Connection& connection() { return *connection_; }
  // The memory of the n-th receive.
  [[nodiscard]] Content received(std::size_t index) const;
  // The sinks of this side's reads, in order: STag, address and length.
  [[nodiscard]] const std::vector<iwarp::LocalSlice>& sinks() const { return sinks_; }
  // STags that the other side wrote to.
  [[nodiscard]] const std::vector<std::uint32_t>& written() const { return written_; }

  MemoryHost host;

 private:
  struct Extent {
    std::uint64_t begin = UINT64_MAX;
    std::uint64_t end = 0;
  };

  // The answer of this side to a read of the other side, and the record of that read.
  struct Answer {
    std::size_t record = 0;
    std::uint32_t stag = 0;
    std::uint64_t offset = 0;
    Content content{};
  };

  void learn_from_other();
  void learn_from_own();
  void touch(std::uint32_t stag, std::uint64_t offset, std::uint64_t length);
  void learn_answers();
  void fill_sources(std::size_t record);
  void post_receives();
  void shake_hands();
  void post_from(std::size_t record);
  void post_message(std::size_t first, std::size_t last);
  void collect();

  const Flow& flow_;
  Side side_;
  Choices choices_;
  Stream own_;
  Stream others_;
  bool crc_ = false;
  std::map<std::uint32_t, Extent> extents_;
  std::vector<std::uint32_t> written_;
  std::vector<iwarp::LocalSlice> sinks_;
  std::vector<Answer> answers_;
  std::vector<Region*> receive_regions_;
  std::unique_ptr<iwarp::Connection> connection_;
  std::size_t next_own_ = 0;  // in own_.fpdus
  std::vector<Ulpdu> sent_;
};

}  // namespace weft::test
