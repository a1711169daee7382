// Builds the findings about RPCs, so that their sentences have one form.
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
  // The most findings of one kind in one connection; of the rest only the number is reported, at
  // the end.
  static constexpr std::size_t max_of_a_kind = 100;

  // `sink` must outlive this object.
  explicit FindingReport(FindingSink& sink) : sink_(&sink) {}

  void add(Finding finding);
  // Adds a finding about one RPC: with its frames, and the name of the RPC before `sentence`.
  void add(std::string_view kind, const Rpc& rpc, std::string_view sentence);
  // Reports the number of findings that were only counted, and forgets the connection.
  void close(ConnectionId connection);
  void finish();

 private:
  struct Count {
    std::size_t findings = 0;
    Stamp last;
  };
  using Counts = std::map<std::pair<ConnectionId, std::string_view>, Count>;

  void report_rest(Counts::const_iterator begin, Counts::const_iterator end);

  FindingSink* sink_;
  Counts counts_;
};

}  // namespace weft::capture
