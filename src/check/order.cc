#include "check/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "check/describing.h"
#include "check/memory_of_requests.h"

namespace weft::check {
namespace {

constexpr std::uint64_t atomic_bytes = 8;

bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Whether the peer's program learns of the request.
bool is_message(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

std::string name_of(const Access& access) {
  return describe(access.opcode, access.wr_id, access.queue_pair->qp_num);
}

// Without the mutex, because the device is asked.
PeerDevice peer_of(QueuePairAccount& account) {
  if (account.peer) return *account.peer;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  auto* const qp = const_cast<ibv_qp*>(account.qp);
  PeerDevice peer;
  if (checker().below.table->query_qp(qp, &attributes, IBV_QP_AV, &initial) == 0) {
    std::copy_n(attributes.ah_attr.grh.dgid.raw, peer.gid.size(), peer.gid.begin());
    peer.lid = attributes.ah_attr.dlid;
  }
  account.peer = peer;
  return peer;
}

// Inline data have no region; they are read from their addresses.
MemoryRanges inline_ranges(const ibv_send_wr& given) {
  MemoryRanges ranges;
  for (const ibv_sge& piece : pieces_of(given.sg_list, given.num_sge)) {
    ranges.push_back({piece.addr, piece.length});
  }
  return ranges;
}

std::uint64_t bytes_of(const ibv_send_wr& given) {
  std::uint64_t bytes = 0;
  for (const ibv_sge& piece : pieces_of(given.sg_list, given.num_sge)) bytes += piece.length;
  return bytes;
}

Access to_access(const Request& request, const ibv_send_wr& given, QueuePairAccount& account) {
  Access access{.queue_pair = account.qp,
                .wr_id = request.wr_id,
                .opcode = request.opcode,
                .posted = request.posted,
                .rkey = request.rkey,
                .fills = request.writes};
  const bool reads = request.opcode == IBV_WR_RDMA_READ;
  const bool is_atomic = !reads && !request.writes.empty();
  if (reads || is_atomic || is_write(request.opcode)) {
    access.remote = {request.remote_address, is_atomic ? atomic_bytes : bytes_of(given)};
    access.peer = peer_of(account);
  }
  return access;
}

}  // namespace

void OrderOfPosts::check_remote(const Access& access) {
  const auto other = checker().accesses.find_unordered(access);
  if (!other) return;
  found_.push_back({.request = count_,
                    .rule = Rule::unordered_access,
                    .what = fmt::format(
                        "{} accesses {} bytes at {:#x} with rkey {:#x}. {}, whose completion was "
                        "not polled, accesses {} bytes at {:#x}.",
                        name_of(access), access.remote.bytes, access.remote.first, access.rkey,
                        name_of(*other), other->remote.bytes, other->remote.first),
                    .other = other->posted});
}

void OrderOfPosts::check_sources(const Access& access, const MemoryRanges& sources,
                                 unsigned flags) {
  const bool copied = (flags & IBV_SEND_INLINE) != 0;
  const auto filling =
      checker().accesses.find_filling(sources, copied ? nullptr : account_.qp, account_.fenced);
  if (!filling) return;
  const bool here = filling->queue_pair == account_.qp;
  found_.push_back(
      {.request = count_,
       .rule = Rule::missing_fence,
       .what = fmt::format("{} sends memory that {} has still to fill. {}", name_of(access),
                           name_of(*filling),
                           copied ? "Inline data are copied when the request is posted."
                           : here ? "It has no IBV_SEND_FENCE."
                                  : "Nothing orders the requests of two queue pairs."),
       .other = filling->posted});
}

// A fence holds back the request and those behind it. A queue pair in the error state carries out
// nothing.
bool OrderOfPosts::note(Request& request, const ibv_send_wr& given) {
  Checker& state = checker();
  const unsigned flags = given.send_flags;
  const bool is_copied = (flags & IBV_SEND_INLINE) != 0;
  if (account_.qp->state != IBV_QPS_RTS) return ++count_, true;
  Access access = to_access(request, given, account_);
  const bool sends = is_write(request.opcode) || is_message(request.opcode);
  MemoryRanges sources;
  if (sends) sources = is_copied ? inline_ranges(given) : ranges_of(request.pieces);
  const std::lock_guard lock(state.mutex);
  if ((flags & IBV_SEND_FENCE) != 0) account_.fenced = state.accesses.latest();
  if (access.remote.bytes != 0) check_remote(access);
  check_sources(access, sources, flags);
  const bool is_filled = !state.accesses.find_filling(sources);
  request.access = state.accesses.add(std::move(access));
  ++count_;
  return is_filled;
}

void OrderOfPosts::report(Call& call, std::size_t posted) const {
  for (const Disorder& disorder : found_) {
    if (disorder.request >= posted) break;
    call.report(disorder.rule, disorder.what, "It was posted here",
                {{"The other request was posted here", disorder.other}});
  }
}

void note_answer(QueuePairAccount& account) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  const auto is_last_message = [](const Request& request) { return is_message(request.opcode); };
  const auto last = std::find_if(account.sends.rbegin(), account.sends.rend(), is_last_message);
  for (auto request = last; request != account.sends.rend(); ++request) {
    if (is_write(request->opcode)) state.accesses.note_placed(request->access);
  }
}

}  // namespace weft::check
