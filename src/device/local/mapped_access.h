// Accesses to memory of a peer that this process maps as well, by loads, stores and processor
// atomics: no system call. All memory of a peer in this process itself is such memory.
//
// The rules are those of remote_copy.h: an access is announced in the peer's inbox, it looks
// whether the memory is still granted, and it can be revoked even if this process is stopped. The
// look and the stores are one restartable sequence (checked_store.h). A Read changes nothing, so it
// loads first and then looks once. The requests of a list share one announcement, which costs as
// much as the stores of a small Write.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/local/grant_table.h"
#include "device/local/inbox.h"
#include "device/local/peer_process.h"
#include "device/local/remote_copy.h"

namespace weft::device {

// Of one connection. Not thread safe.
class MappedAccess {
 public:
  // `peer`: the inbox of the peer. `announcements`: the connection's.
  MappedAccess(inbox::Inbox& peer, const PeerProcess& process, RemoteCopy& announcements)
      : peer_(peer), process_(process), announcements_(announcements) {}

  // Where this process has mapped what look_up() has found; maps it where it has not yet. Null
  // where it must be accessed in another way.
  [[nodiscard]] std::byte* find(const GrantView::Found& found);

  // withdrawn: the peer's device has to decide. local_fault: `here` cannot be accessed, or memory
  // of a peer in this process. unavailable: this thread cannot do it (part may have been copied).
  enum class Result : std::uint8_t { done, withdrawn, local_fault, unavailable };
  // `at`: from find(). `here` has at most the bytes that were looked up.
  [[nodiscard]] Result write(const GrantView::Found& found, std::byte* at,
                             std::span<const iovec> here);
  [[nodiscard]] Result read(const GrantView::Found& found, const std::byte* at,
                            std::span<const iovec> here);
  // `value`: the operand to add, or what to compare with; then the word's value before.
  [[nodiscard]] Result fetch_add(const GrantView::Found& found, std::byte* at,
                                 std::uint64_t& value);
  [[nodiscard]] Result compare_swap(const GrantView::Found& found, std::byte* at,
                                    std::uint64_t& value, std::uint64_t swap);
  // To be called after the last access of a list, and by the same thread: until then the peer waits
  // where it deregisters memory.
  void end() { announcements_.end_announcement(); }

 private:
  struct Entry {
    // The region that was found there last.
    std::size_t place = 0;
    std::uint64_t generation = 0;
    std::shared_ptr<const FileMemory> memory;  // null: the region cannot be mapped
  };
  [[nodiscard]] std::byte* find_region(const GrantView::Found& found);
  [[nodiscard]] std::byte* map(const GrantView::Found& found);
  // Announces the access until end(), and calls `store` until it is not interrupted.
  template <typename Store>
  [[nodiscard]] Result run(const GrantView::Found& found, Store store);
  [[nodiscard]] Result write_part(const GrantView::Found& found, std::byte* at,
                                  const std::byte* from, std::size_t bytes);
  [[nodiscard]] Result write_staged(const GrantView::Found& found, std::byte* at,
                                    const std::byte* from, std::size_t bytes);

  inbox::Inbox& peer_;
  const PeerProcess& process_;
  RemoteCopy& announcements_;
  std::vector<Entry> entries_;
};

}  // namespace weft::device
