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

RemoteCopy::Listed RemoteCopy::Pieces::list(std::span<iovec> to, std::size_t most_bytes,
                                            Ends ends) const {
  Listed listed;
  std::size_t offset = offset_;
  for (const iovec& piece : pieces_) {
    const std::size_t from = std::exchange(offset, 0);
    const std::size_t bytes = std::min(piece.iov_len - from, most_bytes - listed.bytes);
    if (bytes == 0) continue;
    auto* const at = static_cast<std::byte*>(piece.iov_base) + from;
    const std::size_t head = ends == Ends::apart ? bytes_before_last_line(at, bytes) : 0;
    if (listed.pieces + (head > 0 ? 2 : 1) > to.size()) break;
    if (head > 0) to[listed.pieces++] = {at, head};
    to[listed.pieces++] = {at + head, bytes - head};
    listed.bytes += bytes;
  }
  return listed;
}

void RemoteCopy::abandon_after_fork() {
  thread_number = 0;
}

// Step 1. The kernel copies the smaller of the two sums, so both lists must have the same.
bool RemoteCopy::prepare(Purpose purpose, const Pieces& ours, const Pieces& theirs) {
  const std::span here = std::span(local_).subspan(1);
  const std::span there = std::span(peer_.copy.pieces).subspan(1);
  const Ends ends = purpose == Purpose::write ? Ends::apart : Ends::within;
  Listed remote = theirs.list(there, most_bytes, ends);
  const Listed local = ours.list(here, remote.bytes, Ends::within);
  if (local.bytes < remote.bytes) remote = theirs.list(there, local.bytes, ends);
  bytes_ = remote.bytes;
  if (bytes_ == 0) return false;
  local_count_ = 1 + local.pieces;
  remote_count_ = 1 + remote.pieces;
  if (purpose == Purpose::fetch) split_source();
  local_[0] = {&mark_, sizeof mark_};
  // The mark comes first, so a call that reaches another program fails before it touches anything
  // else.
  peer_.copy.pieces[0] = {reinterpret_cast<void*>(process_.mark().address), sizeof mark_};
  mark_ = process_.mark().number;
  return true;
}

// The kernel copies the pieces of the peer's list one after the other, whichever side is the
// target. A list without room stays as it is: programs that watch memory write one piece.
void RemoteCopy::split_source() {
  iovec& last = peer_.copy.pieces[remote_count_ - 1];
  const iovec& target = local_[local_count_ - 1];
  const std::size_t end = target.iov_len - bytes_before_last_line(target.iov_base, target.iov_len);
  if (end >= last.iov_len || remote_count_ == peer_.copy.pieces.size()) return;
  last.iov_len -= end;
  peer_.copy.pieces[remote_count_++] = {static_cast<std::byte*>(last.iov_base) + last.iov_len, end};
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
int RemoteCopy::copy(Purpose purpose) {
  const bool writes = purpose == Purpose::write || purpose == Purpose::send;
  const auto call = writes ? &process_vm_writev : &process_vm_readv;
  const std::size_t expected = sizeof mark_ + bytes_;
  while (true) {
    const ssize_t done = call(process_.pid(), local_.data(), local_count_, peer_.copy.pieces.data(),
                              remote_count_, 0);
    // Interrupted before it has copied anything: a partial copy returns its size.
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    // process_vm_readv(2): a partial transfer ends at the first page that cannot be accessed.
    if (static_cast<std::size_t>(done) != expected) return EFAULT;
    // A read has fetched the mark that is there now.
    return mark_ == process_.mark().number ? 0 : ESRCH;
  }
}

// EAGAIN: the peer has revoked the copy.
int RemoteCopy::explain_fault(unsigned attempt) {
  if (peer_.copy.revoked.exchange(0) != 0 && attempt < most_attempts) return EAGAIN;
  const int failed = process_.check_mark();
  return failed == 0 ? EFAULT : failed;
}

// --- The end that deregisters --------------------------------------------------------------------

namespace {

// Longer than nearly every copy; then the peer may be stopped.
constexpr std::uint64_t revoke_after_ns = 1'000'000;
// A thread that is neither stopped nor done within this time after the revocation waits for a
// processor (a frozen container) or for a page. The former has no copy under way.
constexpr std::uint64_t longest_ns = 5'000'000'000;
constexpr unsigned pause_us = 100;

// Only the sizes change, one by one: each piece that the kernel reads is the whole one or empty.
void empty_list(inbox::Copy& copy) {
  copy.revoked.store(1, std::memory_order_seq_cst);
  for (iovec& piece : copy.pieces) {
    std::atomic_ref(piece.iov_len).store(0, std::memory_order_seq_cst);
  }
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
  empty_list(copy);
  while (!over() && !peer.is_stopped(copy.thread) && sys::now_ns() - began_ns < longest_ns) {
    sys::sleep_us(pause_us);
  }
}

}  // namespace weft::device
