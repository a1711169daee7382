// Keeps a program of a simulation from handing over.
#pragma once

namespace weft {

// While one exists in a thread, its polls that find nothing let no other program run. For code that
// polls with a lock which another thread of the same program may wait for.
class KeptTurn {
 public:
  KeptTurn();
  ~KeptTurn();
  KeptTurn(const KeptTurn&) = delete;
  KeptTurn& operator=(const KeptTurn&) = delete;

  [[nodiscard]] static bool is_kept();  // by the calling thread
};

}  // namespace weft
