#include "base/kept_turn.h"

namespace weft {
namespace {

thread_local constinit int kept = 0;

}  // namespace

KeptTurn::KeptTurn() {
  ++kept;
}

KeptTurn::~KeptTurn() {
  --kept;
}

bool KeptTurn::is_kept() {
  return kept > 0;
}

}  // namespace weft
