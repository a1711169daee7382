#include "device/local/remote_copy.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

namespace weft::device {
namespace {

// One call copies no more, so that a peer that deregisters does not wait for long.
constexpr std::size_t most_bytes = std::size_t{16} << 20;

// A revocation needs a peer that deregisters and this thread standing still for a millisecond. Only
// a peer that breaks the rules revokes so often.
constexpr unsigned most_attempts = 100;

// Of x86-64; on other processors it may be larger, and then a smaller part is as good.
constexpr std::size_t line_bytes = 64;

// The kernel copies a piece by string instructions, whose stores may become visible in another
// order (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, "Fast-String
// Operation and Out-of-Order Stores"): of some 100 000 copies of 4 KiB one had its last byte before
// others. Pieces are copied in their order.
std::size_t bytes_before_last_line(const void* at, std::size_t bytes) {
  const std::size_t last = (reinterpret_cast<std::uintptr_t>(at) + bytes - 1) % line_bytes + 1;
  return bytes > last ? bytes - last : 0;
}

constexpr unsigned pause_us = 100;

bool revocation_under_way(std::uint64_t revocations) {
  return static_cast<std::uint32_t>(revocations >> 32) != static_cast<std::uint32_t>(revocations);
}

thread_local std::uint32_t thread_number = 0;  // 0: not known yet

// The kernel's number of this thread.
std::uint32_t this_thread() {
  if (thread_number == 0) thread_number = static_cast<std::uint32_t>(sys::thread_id());
  return thread_number;
}

}  // namespace

void RemoteCopy::Pieces::skip(std::size_t bytes) {
  while (!pieces_.empty() && bytes >= pieces_.front().iov_len - offset_) {
    bytes -= pieces_.front().iov_len - offset_;
    offset_ = 0;
    pieces_ = pieces_.subspan(1);
  }
  if (!pieces_.empty()) offset_ += bytes;
}

RemoteCopy::Lists::Lists(std::uint64_t& mark_here, std::uintptr_t mark_there) {
  here[here_count++] = {&mark_here, sizeof mark_here};
  there[there_count++] = {reinterpret_cast<void*>(mark_there), sizeof mark_here};
}

// For each of the peer's pieces the kernel looks up pages, which costs far more than a piece of
// this end: on one machine 0.3 us against 15 ns. So what is adjacent there becomes one piece, and
// the order is in the pieces of this end, which the kernel copies one after the other.
bool RemoteCopy::Lists::add(std::byte* ours, std::byte* theirs, std::size_t length_bytes) {
  // The first piece, the mark, stays alone.
  iovec& last = there[there_count - 1];
  const bool adjacent =
      there_count > 1 && static_cast<std::byte*>(last.iov_base) + last.iov_len == theirs;
  if (here_count == here.size() || (!adjacent && there_count == there.size())) return false;
  here[here_count++] = {ours, length_bytes};
  if (adjacent) {
    last.iov_len += length_bytes;
  } else {
    there[there_count++] = {theirs, length_bytes};
  }
  bytes += length_bytes;
  return true;
}

void RemoteCopy::abandon_after_fork() {
  thread_number = 0;
}

// Step 1. The bytes in the last cache line of each piece of the target are a piece of their own,
// where a program may watch it.
bool RemoteCopy::prepare(Purpose purpose, Pieces ours, Pieces theirs, Lists& lists) {
  const bool watched = purpose == Purpose::write || purpose == Purpose::fetch;
  const Pieces& target = purpose == Purpose::write ? theirs : ours;
  while (!ours.empty() && !theirs.empty() && lists.bytes < most_bytes) {
    std::size_t part = std::min({ours.left(), theirs.left(), most_bytes - lists.bytes});
    const std::size_t head = watched ? bytes_before_last_line(target.at(), target.left()) : 0;
    if (head > 0) part = std::min(part, head);
    if (!lists.add(ours.at(), theirs.at(), part)) break;
    ours.skip(part);
    theirs.skip(part);
  }
  // Only whole pieces: the peer may be emptying the list of an earlier attempt. See empty_list().
  std::copy_n(lists.there.begin(), lists.there_count, shared_list(lists));
  return lists.bytes > 0;
}

// Where the kernel reads the list of the peer's memory.
iovec* RemoteCopy::shared_list(const Lists& lists) const {
  return lists.there_count <= inbox::Copy::few_pieces ? peer_.copy.pieces.data()
                                                      : peer_.copy_pieces.data();
}

// Step 2. Sequentially consistent, as what is read next: either the peer sees the announcement, or
// this end sees that the peer has withdrawn the memory. See GrantTable::withdraw().
void RemoteCopy::announce() {
  if (sequence_ % 2 != 0) return;
  // Visible with the sequence number that follows.
  peer_.copy.thread.store(this_thread(), std::memory_order_relaxed);
  peer_.copy.sequence.store(++sequence_, std::memory_order_seq_cst);
}

void RemoteCopy::end_announcement() {
  if (sequence_ % 2 == 0) return;
  peer_.copy.sequence.store(++sequence_, std::memory_order_release);
}

// Step 4.
int RemoteCopy::copy(Purpose purpose, const Lists& lists) {
  const bool writes = purpose == Purpose::write || purpose == Purpose::send;
  const auto call = writes ? &process_vm_writev : &process_vm_readv;
  const std::size_t expected = sizeof mark_ + lists.bytes;
  while (true) {
    const ssize_t done = call(process_.pid(), lists.here.data(), lists.here_count,
                              shared_list(lists), lists.there_count, 0);
    // Interrupted before it has copied anything: a partial copy returns its size.
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    // process_vm_readv(2): a partial transfer ends at the first page that cannot be accessed.
    if (static_cast<std::size_t>(done) != expected) return EFAULT;
    // A read has fetched the mark that is there now.
    return mark_ == process_.mark().number ? 0 : ESRCH;
  }
}

// EAGAIN: the peer has revoked the copy. `revocations_before`: as of before the list was written. A
// revocation that had begun by then may have emptied what was written since.
int RemoteCopy::explain_fault(std::uint64_t revocations_before, unsigned attempt) {
  const bool under_way = revocation_under_way(revocations_before);
  const bool revoked =
      under_way || peer_.copy.revocations.load(std::memory_order_seq_cst) != revocations_before;
  if (revoked && attempt < most_attempts) {
    // The thread that revokes may stand still as well.
    if (under_way) sys::sleep_us(pause_us);
    return EAGAIN;
  }
  const int failed = process_.check_mark();
  return failed == 0 ? EFAULT : failed;
}

// --- The end that deregisters --------------------------------------------------------------------

namespace {

// Longer than nearly every copy; then the peer may be stopped.
constexpr std::uint64_t revoke_after_ns = 1'000'000;

// Only the sizes change, one by one: each piece that the kernel reads is the whole one or empty.
// The last one first, and so the mark of the process last: the kernel fills the pieces one after
// the other, and what it still fills gets the bytes that are meant for it.
void empty_list(std::span<iovec> pieces) {
  for (std::size_t i = pieces.size(); i-- > 0;) {
    std::atomic_ref(pieces[i].iov_len).store(0, std::memory_order_seq_cst);
  }
}

// Which of the two lists the peer uses is its own choice.
void revoke(inbox::Inbox& own) {
  own.copy.revocations.fetch_add(inbox::begins_revocation, std::memory_order_seq_cst);
  empty_list(own.copy.pieces);
  empty_list(own.copy_pieces);
  own.copy.revocations.fetch_add(inbox::ends_revocation, std::memory_order_seq_cst);
}

}  // namespace

// The peer's thread may be preempted between two steps, so an early revocation only costs it
// another attempt. That the thread is stopped counts only if it is so after the revocation.
void await_copy(inbox::Inbox& own, const PeerProcess& peer) {
  inbox::Copy& copy = own.copy;
  const std::uint64_t announced = copy.sequence.load(std::memory_order_seq_cst);
  const auto over = [&] {
    return copy.sequence.load(std::memory_order_seq_cst) != announced || !peer.alive();
  };
  // Odd while a copy is announced. Copies that are announced later have looked at the table later,
  // and did not find the region.
  if (announced % 2 == 0 || over()) return;
  const std::uint64_t began_ns = sys::now_ns();
  // Most copies end within this time, and yielding gives their thread the processor.
  while (sys::now_ns() - began_ns < revoke_after_ns) {
    sys::yield();
    if (over()) return;
  }
  revoke(own);
  // A thread that is neither stopped nor done by then waits for a processor (a frozen container) or
  // for a page. The former has no copy under way.
  const std::uint64_t limit_ns = peer.patience().limit_ns(began_ns);
  while (!over() && !peer.is_stopped(copy.thread) && sys::now_ns() - began_ns < limit_ns) {
    sys::sleep_us(pause_us);
  }
  const std::uint64_t now_ns = sys::now_ns();
  peer.patience().spend(now_ns - began_ns, now_ns);
}

}  // namespace weft::device
