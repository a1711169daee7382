// What a checked program sees where verbs defines nothing: fields of completions, and the memory of
// a Read that is under way. Prints each value.
//
//   patterns
#include <infiniband/verbs.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "check/pair.h"

namespace {

using misuse::need;
using misuse::Pair;

constexpr unsigned signaled = IBV_SEND_SIGNALED;
constexpr std::size_t source = 4096;       // bytes into the memory of the pair
constexpr std::size_t destination = 8192;  // the same

void print(const char* name, std::uint64_t value) {
  std::printf("%s %" PRIx64 "\n", name, value);
}

void show_fields() {
  Pair pair;
  pair.receive(32768, 64);
  pair.receive(32768, 64);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  const ibv_wc sent = Pair::poll(pair.sender_cq);
  print("sent.opcode", sent.opcode);
  print("sent.byte_len", sent.byte_len);
  const ibv_wc received = Pair::poll(pair.receiver_cq);
  print("received.byte_len", received.byte_len);
  print("received.imm_data", received.imm_data);
  print("received.src_qp", received.src_qp);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  need(ibv_modify_qp(pair.receiver, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
  const ibv_wc flushed = Pair::poll(pair.receiver_cq);
  print("flushed.status", flushed.status);
  print("flushed.wr_id", flushed.wr_id);
  // No value of the type, so it is read as a number.
  std::uint32_t opcode = 0;
  std::memcpy(&opcode, &flushed.opcode, sizeof opcode);
  print("flushed.opcode", opcode);
  pair.close();
}

std::uint64_t& word(Pair& pair, std::size_t first) {
  return pair.memory[first / sizeof(std::uint64_t)];
}

// The Reads wait for the peer, until one finds no place in the queue.
void show_reads() {
  Pair pair({.requests = 4, .late_receiver = true});
  pair.remote_address += source;
  word(pair, source) = 0x1234;
  int posted = 0;
  int failed = 0;
  while (true) {
    const std::size_t at = destination + static_cast<std::size_t>(posted) * sizeof(std::uint64_t);
    word(pair, at) = 0x5678;
    failed = pair.send(IBV_WR_RDMA_READ, pair.piece(at, sizeof(std::uint64_t)), signaled);
    if (failed != 0) break;
    if (posted++ == 0) print("read.posted", word(pair, at));
  }
  need(failed == ENOMEM, "the queue is full");
  print("read.refused", word(pair, destination + static_cast<std::size_t>(posted) * 8));
  pair.connect_receiver();
  for (int i = 0; i < posted; ++i) Pair::poll(pair.sender_cq);
  print("read.complete", word(pair, destination));
  pair.close();
}

// The device refuses to write to the memory.
void show_forbidden_read() {
  Pair pair;
  ibv_mr* region = pair.add_region(destination, sizeof(std::uint64_t), 0);
  word(pair, destination) = 0x5678;
  ibv_sge piece = pair.piece(destination, sizeof(std::uint64_t));
  piece.lkey = region->lkey;
  need(pair.send(IBV_WR_RDMA_READ, piece, signaled) == 0, "ibv_post_send");
  need(Pair::poll(pair.sender_cq).status == IBV_WC_LOC_PROT_ERR, "the Read is refused");
  print("read.forbidden", word(pair, destination));
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

}  // namespace

int main() {
  show_fields();
  show_reads();
  show_forbidden_read();
  return 0;
}
