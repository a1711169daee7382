// Where findings about RPCs are made: one place for their sentences.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/capture/finding.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/rpc_findings.hpp"

namespace weft::capture {

class FindingReport {
 public:
  // Of one kind in one connection; of more only the number is told, at the end.
  static constexpr std::size_t max_of_a_kind = 100;

  // `sink` must outlive this.
  explicit FindingReport(FindingSink& sink) : sink_(&sink) {}

  void add(Finding finding);
  // About one RPC: its frames, and a sentence that begins with what it is.
  void add(std::string_view kind, const Rpc& rpc, std::string_view sentence);
  // Says of which kinds there were more, and forgets the connection.
  void close(ConnectionId connection);
  void finish();

 private:
  struct Count {
    std::size_t findings = 0;
    Stamp last;
  };
  using Counts = std::map<std::pair<ConnectionId, std::string_view>, Count>;

  void tell_rest(Counts::const_iterator begin, Counts::const_iterator end);

  FindingSink* sink_;
  Counts counts_;
};

}  // namespace weft::capture
