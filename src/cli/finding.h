// One result of a check of `weft doctor`.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

enum class Health {
  good,
  note,     // worth knowing, but Weft works
  problem,  // something does not work until it is fixed
};

struct Finding {
  std::string subject;  // one or two words, which never change: scripts search for them
  Health health = Health::good;
  std::string sentence;
  std::string fix;  // the next step; empty if nothing needs to be done
};

using Findings = std::vector<Finding>;

}  // namespace weft::cli
