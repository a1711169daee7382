#include "base/kept_turn.h"

namespace weft {
namespace {

thread_local constinit int turns_kept = 0;

}  // namespace

KeptTurn::KeptTurn() {
  ++turns_kept;
}

KeptTurn::~KeptTurn() {
  --turns_kept;
}

bool KeptTurn::is_kept() {
  return turns_kept > 0;
}

}  // namespace weft
