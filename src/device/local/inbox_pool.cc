#include "device/local/inbox_pool.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "device/limits.h"

namespace weft::device {
namespace {

// A process with one connection has no use for more; one with thousands makes a file for each 16.
constexpr std::uint32_t most_in_a_file = 16;

// What the peer of the connection before has written is not trusted: its position may be any
// number, and then only this peer's own messages are not found. The slots are left as they are,
// because no stamp in them is behind the position, and so are receives and pieces of copies, which
// are written before they are counted.
void reset(inbox::Inbox& inbox) {
  const std::uint64_t position = inbox.leaving.position.load(std::memory_order_relaxed);
  std::memset(static_cast<void*>(&inbox), 0, offsetof(inbox::Inbox, near));
  inbox.first_slot = position;
  inbox.leaving.position.store(position, std::memory_order_relaxed);
  inbox.consumed.store(position, std::memory_order_relaxed);
}

}  // namespace

// A page of its own for the beginning of each, so that an idle inbox uses as few pages as possible.
std::size_t InboxFile::stride(std::uint32_t receives) {
  static_assert(inbox::bytes_for(1) % 4096 == 0);
  return inbox::bytes_for(receives);
}

inbox::Inbox* InboxFile::at(std::uint32_t index) const {
  return std::launder(reinterpret_cast<inbox::Inbox*>(memory.data() + index * stride(receives)));
}

InboxPlace InboxPool::take(std::uint32_t receives) {
  std::vector<InboxPlace>& free = free_[receives];
  if (free.empty() && !grow(receives)) return {};
  InboxPlace taken = std::move(free.back());
  free.pop_back();
  --free_count_;
  --files_[taken.file_number].free;
  reset(*taken.inbox());
  return taken;
}

bool InboxPool::grow(std::uint32_t receives) {
  std::uint32_t& existing = inboxes_of_receives_[receives];
  const std::uint32_t count = std::clamp(existing, 1U, most_in_a_file);
  auto file = std::make_shared<InboxFile>();
  file->memory = SharedMemory::create("weft-inboxes", count * InboxFile::stride(receives));
  if (!file->memory.valid()) return false;
  file->receives = receives;
  file->count = count;
  existing += count;
  free_count_ += count;
  files_[++last_file_] = {.file = file, .free = count};
  for (std::uint32_t index = count; index-- > 0;) {
    free_[receives].push_back({.file = file, .file_number = last_file_, .index = index});
  }
  return true;
}

std::optional<std::uint32_t> InboxPool::give_back(InboxPlace place) {
  const std::uint32_t number = place.file_number;
  Known& known = files_[number];
  const std::uint32_t receives = known.file->receives;
  const std::uint32_t count = known.file->count;
  free_[receives].push_back(std::move(place));
  ++free_count_;
  if (++known.free < count || free_count_ < limits::kept_inboxes + count) return std::nullopt;
  std::erase_if(free_[receives],
                [number](const InboxPlace& one) { return one.file_number == number; });
  free_count_ -= count;
  inboxes_of_receives_[receives] -= count;
  files_.erase(number);
  return number;
}

void InboxPool::abandon_after_fork() {
  for (auto& [number, known] : files_) known.file->memory.abandon();
}

}  // namespace weft::device
