// The contexts of the other process of a pair that its connections belong to. Each is named by its
// mark, and was sent once.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/local/peer_process.h"

namespace weft::device {

// Not thread-safe.
class PeerContexts {
 public:
  // Null if it was not added, or was closed since.
  [[nodiscard]] std::shared_ptr<const PeerProcess> find(const ProcessMark::Name& mark) const;
  // Contexts that the peer has closed are removed, now and then.
  [[nodiscard]] bool has_room();
  void add(std::shared_ptr<const PeerProcess> context) { known_.push_back(std::move(context)); }

 private:
  std::vector<std::shared_ptr<const PeerProcess>> known_;
  std::size_t look_at_ = 16;  // so many are known when it looks for closed ones
};

}  // namespace weft::device
