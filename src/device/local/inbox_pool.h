// The inboxes that a process makes for its connections to one other process. Several lie in one
// file of shared memory, and one that a connection has left is used by the next: then nothing is
// made, sent or mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/local/inbox.h"
#include "device/local/shared_memory.h"

namespace weft::device {

// A file with `count` inboxes of one size, mapped by its owner or by its peer.
struct InboxFile {
  SharedMemory memory;
  std::uint32_t receives = 0;  // places for published receives in each inbox, a power of two
  std::uint32_t count = 0;

  [[nodiscard]] static std::size_t stride(std::uint32_t receives);
  [[nodiscard]] inbox::Inbox* at(std::uint32_t index) const;
};

// One inbox. It keeps its file alive.
struct InboxPlace {
  std::shared_ptr<InboxFile> file;
  std::uint32_t file_number = 0;  // as owner and peer name the file
  std::uint32_t index = 0;

  [[nodiscard]] bool valid() const { return file != nullptr; }
  [[nodiscard]] inbox::Inbox* inbox() const { return file->at(index); }
};

// Not thread-safe.
class InboxPool {
 public:
  // An inbox in its first state. Not valid where there is no memory.
  [[nodiscard]] InboxPlace take(std::uint32_t receives);
  // Neither process uses it any more. The number of a file of which all inboxes are free now, and
  // which the pool has given up: the peer shall give it up as well.
  [[nodiscard]] std::optional<std::uint32_t> give_back(InboxPlace place);
  void abandon_after_fork();

 private:
  struct Known {
    std::shared_ptr<InboxFile> file;
    std::uint32_t free = 0;
  };
  [[nodiscard]] bool grow(std::uint32_t receives);

  std::map<std::uint32_t, Known> files_;                        // by number
  std::map<std::uint32_t, std::vector<InboxPlace>> free_;       // by receives; the last one first
  std::map<std::uint32_t, std::uint32_t> inboxes_of_receives_;  // that exist
  std::size_t free_count_ = 0;
  std::uint32_t last_file_ = 0;
};

}  // namespace weft::device
