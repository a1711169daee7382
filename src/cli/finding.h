// What `weft doctor` found out, one thing at a time.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

enum class Health {
  good,
  note,     // worth knowing; Weft works all the same
  problem,  // something will not work until it is mended
};

struct Finding {
  std::string subject;  // one or two words, stable: scripts look for it
  Health health = Health::good;
  std::string sentence;
  std::string fix;  // what to do about it; empty where nothing needs doing
};

using Findings = std::vector<Finding>;

}  // namespace weft::cli
