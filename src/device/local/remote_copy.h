// Copies between the memory of this process and that of a peer on the same host:
// process_vm_readv(2), process_vm_writev(2).
//
// The peer may deregister memory at any time, and must then know that no copy reaches it any more,
// even if this process is stopped in the middle (SIGSTOP). So each copy takes these steps:
//
//   1. The list of the peer's memory is written into the peer's inbox (inbox::Copy).
//   2. The copy is announced there: the sequence number becomes odd.
//   3. This end looks whether the memory is still granted.
//   4. The kernel reads the list, and copies.
//   5. The sequence number becomes even.
//
// A peer that deregisters withdraws the memory first. Then a copy that is not announced yet stops
// at step 3, and for one that is announced the peer waits. A copy that lasts is revoked: the peer
// empties the list, so that a copy before step 4 finds nothing to do, and waits only until this
// thread is stopped, which it cannot be within step 4. Here the copy starts anew.
//
// Each copy begins with the mark of the peer: see process_mark.h.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/local/inbox.h"
#include "device/local/peer_process.h"

namespace weft::device {

// The end that copies. Not thread safe.
class RemoteCopy {
 public:
  // write: to the peer, for a program that may watch the last byte. send: to the peer, where a
  // message follows. read: from the peer. fetch: from the peer, in the place of a write of its own.
  enum class Purpose : std::uint8_t { write, send, read, fetch };

  // `peer`: the inbox of the peer.
  RemoteCopy(inbox::Inbox& peer, const PeerProcess& process) : peer_(peer), process_(process) {}

  // Both lists have the same total size. For `write` and `fetch` the bytes in the last cache line
  // of each piece of the target become visible after all others of the piece. `granted`: called
  // after each announcement; false: the peer has withdrawn the memory. Returns 0; EACCES if it was
  // withdrawn; EFAULT where one of the two is not mapped or the peer's list is shorter (part may
  // have been copied); EPERM where the kernel refuses; ESRCH after the end of the peer.
  template <typename Granted>
  [[nodiscard]] int run(Purpose purpose, std::span<const iovec> here, std::span<const iovec> there,
                        Granted granted) {
    Pieces ours{here};
    Pieces theirs{there};
    end_announcement();
    for (unsigned attempt = 0; true;) {
      mark_ = process_.mark().number;
      Lists lists(mark_, process_.mark().address);
      const std::uint64_t revocations = peer_.copy.revocations.load(std::memory_order_seq_cst);
      if (!prepare(purpose, ours, theirs, lists)) break;
      int failed = EACCES;
      announce();
      if (peer_.open.load(std::memory_order_seq_cst) != 0 && granted()) {
        failed = copy(purpose, lists);
      }
      end_announcement();
      if (failed == EFAULT) failed = explain_fault(revocations, ++attempt);
      if (failed == EAGAIN) continue;
      if (failed != 0) return failed;
      ours.skip(lists.bytes);
      theirs.skip(lists.bytes);
      attempt = 0;
    }
    return ours.empty() ? 0 : EFAULT;
  }

  // Steps 2 and 5 alone, around accesses by plain stores: see mapped_access.h. An announcement may
  // cover several of them; each call does nothing where it is made already.
  void announce();
  void end_announcement();

  // In the child after fork(), whose thread has another number.
  static void abandon_after_fork();

 private:
  // What is left of a list.
  class Pieces {
   public:
    explicit Pieces(std::span<const iovec> all) : pieces_(all) { skip(0); }
    [[nodiscard]] bool empty() const { return pieces_.empty(); }
    // What is left of the first piece. Not empty.
    [[nodiscard]] std::byte* at() const {
      return static_cast<std::byte*>(pieces_.front().iov_base) + offset_;
    }
    [[nodiscard]] std::size_t left() const { return pieces_.front().iov_len - offset_; }
    void skip(std::size_t bytes);

   private:
    std::span<const iovec> pieces_;
    std::size_t offset_ = 0;  // into the first one
  };

  // What one call copies. Both lists begin with the mark of the peer, so that a call that reaches
  // another program fails before it touches anything else, and have the same size.
  struct Lists {
    // `mark_here`: used until the call is over.
    Lists(std::uint64_t& mark_here, std::uintptr_t mark_there);
    // False where a list is full.
    [[nodiscard]] bool add(std::byte* ours, std::byte* theirs, std::size_t length_bytes);

    std::array<iovec, 3 * inbox::Copy::most_pieces> here;
    std::array<iovec, inbox::Copy::most_pieces> there;
    std::size_t here_count = 0;
    std::size_t there_count = 0;
    std::size_t bytes = 0;  // without the mark
  };

  [[nodiscard]] bool prepare(Purpose purpose, Pieces ours, Pieces theirs, Lists& lists);
  [[nodiscard]] iovec* shared_list(const Lists& lists) const;
  [[nodiscard]] int copy(Purpose purpose, const Lists& lists);
  [[nodiscard]] int explain_fault(std::uint64_t revocations_before, unsigned attempt);

  inbox::Inbox& peer_;
  const PeerProcess& process_;
  std::uint64_t sequence_ = 0;  // odd while an access is announced
  std::uint64_t mark_ = 0;
};

// The other end, which deregisters memory: returns when no copy of the peer uses memory any more
// that was withdrawn before. Takes as long as the peer's current copy; where that is stopped, about
// a millisecond; and no longer than patience.h says. `own`: the inbox of this end. Any thread.
void await_copy(inbox::Inbox& own, const PeerProcess& peer);

}  // namespace weft::device
