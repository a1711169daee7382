// The receives whose outcome goes to a coroutine of its own instead of Connection::await(), and
// those that keep their slice until they have completed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "connection/requests.h"
#include "weft/verbs/kept_slice.hpp"

namespace weft::connection::detail {

// Their work request ids have the mark of this library. Not thread-safe; guarded by
// Core::receiving_.
class AwaitedReceives {
 public:
  struct Receive {
    std::uint64_t user_id;
    AwaitedRequest* awaited;  // null: Connection::await() returns the outcome
    std::optional<verbs::KeptSlice> kept;
  };

  // Returns the wr_id to post with.
  [[nodiscard]] std::uint64_t add(std::uint64_t user_id, AwaitedRequest* awaited,
                                  const verbs::KeptSlice* kept) {
    const std::uint64_t id = Requests::mark | (++last_ & ~(std::uint64_t{0xFFFF} << 48));
    receives_.emplace(id, Receive{user_id, awaited, kept ? std::optional(*kept) : std::nullopt});
    return id;
  }
  // Removes the receive that has completed, or could not be posted; nothing if it is the user's.
  std::optional<Receive> finish(std::uint64_t id) {
    const auto found = receives_.find(id);
    if (found == receives_.end()) return std::nullopt;
    Receive receive = std::move(found->second);
    receives_.erase(found);
    return receive;
  }
  // Stops delivering to `awaited`.
  void detach(const AwaitedRequest& awaited) {
    for (auto& [id, receive] : receives_) {
      if (receive.awaited == &awaited) receive.awaited = nullptr;
    }
  }

 private:
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Receive> receives_;
};

}  // namespace weft::connection::detail
