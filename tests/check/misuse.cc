// Programs that each break one rule of verbs, and that each nearly do.
//
//   misuse CASE bad|near
#include <infiniband/verbs.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "check/pair.h"

namespace {

using misuse::need;
using misuse::Options;
using misuse::Pair;

constexpr unsigned signaled = IBV_SEND_SIGNALED;

// Sends the piece, and polls what completes.
void exchange(Pair& pair, ibv_sge piece) {
  pair.receive(32768, 32768);
  need(pair.send(IBV_WR_SEND, piece, signaled) == 0, "ibv_post_send");
  // After an error of the sender the receive may stay posted.
  if (Pair::poll(pair.sender_cq).status == IBV_WC_SUCCESS) Pair::poll(pair.receiver_cq);
}

void dead_key(bool bad) {
  Pair pair;
  ibv_mr* other = pair.add_region(0, 4096, IBV_ACCESS_LOCAL_WRITE);
  ibv_sge piece = pair.piece(0, 64);
  piece.lkey = other->lkey;
  if (bad) need(ibv_dereg_mr(other) == 0, "ibv_dereg_mr");
  exchange(pair, piece);
  if (!bad) need(ibv_dereg_mr(other) == 0, "ibv_dereg_mr");
  pair.close();
}

void unknown_key(bool bad) {
  Pair pair;
  ibv_sge piece = pair.piece(0, 64);
  if (bad) piece.lkey ^= 0x5A5A00;
  exchange(pair, piece);
  pair.close();
}

void wrong_domain(bool bad) {
  Pair pair;
  ibv_pd* other = ibv_alloc_pd(pair.context);
  ibv_mr* region = ibv_reg_mr(bad ? other : pair.pd, pair.memory.data(), 4096, 0);
  need(region != nullptr, "ibv_reg_mr");
  ibv_sge piece = pair.piece(0, 64);
  piece.lkey = region->lkey;
  exchange(pair, piece);
  need(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(other) == 0, "ibv_dealloc_pd");
  pair.close();
}

void region_too_small(bool bad) {
  Pair pair;
  ibv_mr* region = pair.add_region(0, 4096, 0);
  ibv_sge piece = pair.piece(4096 - 64, bad ? 65 : 64);
  piece.lkey = region->lkey;
  exchange(pair, piece);
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

// A Read into memory that may be read only; a Send of it is allowed.
void missing_right(bool bad) {
  Pair pair;
  ibv_mr* region = pair.add_region(0, 4096, 0);
  ibv_sge piece = pair.piece(0, 64);
  piece.lkey = region->lkey;
  if (bad) {
    need(pair.send(IBV_WR_RDMA_READ, piece, signaled) == 0, "ibv_post_send");
    Pair::poll(pair.sender_cq);
  } else {
    exchange(pair, piece);
  }
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

void remote_refused(bool bad) {
  Pair pair;
  ibv_mr* region = pair.add_region(0, 4096, bad ? 0 : Pair::all_rights);
  pair.remote_key = region->rkey;
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(8192, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  // Behind the completion of the error, which destroys nothing.
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

void changed_send(bool bad) {
  Pair pair;
  pair.receive(32768, 4096);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 4096), signaled) == 0, "ibv_post_send");
  pair.memory[bad ? 511 : 512] = 1;  // within the message, and behind it
  Pair::poll(pair.sender_cq);
  pair.memory[0] = 2;
  Pair::poll(pair.receiver_cq);
  pair.close();
}

// The receive stays posted; in the other variant its queue pair is destroyed first.
void posted_region(bool bad) {
  Pair pair;
  ibv_mr* region = pair.add_region(0, 4096, IBV_ACCESS_LOCAL_WRITE);
  std::swap(pair.mr, region);
  pair.receive(0, 4096);
  std::swap(pair.mr, region);
  if (bad) need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  need(ibv_modify_qp(pair.receiver, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
  Pair::poll(pair.receiver_cq);
  if (!bad) need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

void leak(bool bad) {
  Pair pair;
  ibv_pd* other = ibv_alloc_pd(pair.context);
  if (!bad) need(ibv_dealloc_pd(other) == 0, "ibv_dealloc_pd");
  // With a domain left, ibv_close_device() is a finding of its own; so the context stays as well.
  if (!bad) return pair.close();
  ibv_destroy_qp(pair.sender);
  ibv_destroy_qp(pair.receiver);
  ibv_destroy_cq(pair.sender_cq);
  ibv_destroy_cq(pair.receiver_cq);
  ibv_dereg_mr(pair.mr);
  ibv_dealloc_pd(pair.pd);
}

void still_in_use(bool bad) {
  Pair pair;
  if (bad) need(ibv_destroy_cq(pair.sender_cq) != 0, "ibv_destroy_cq fails");
  pair.close();
}

void destroyed_object(bool bad) {
  Pair pair;
  ibv_cq* cq = ibv_create_cq(pair.context, 4, nullptr, nullptr, 0);
  ibv_wc completion{};
  need(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
  ibv_cq* newer = ibv_create_cq(pair.context, 4, nullptr, nullptr, 0);
  const int polled = ibv_poll_cq(bad ? cq : newer, 1, &completion);
  need(polled <= 0, "ibv_poll_cq");
  need(ibv_destroy_cq(newer) == 0, "ibv_destroy_cq");
  pair.close();
}

void wrong_state(bool bad) {
  Pair pair({.connected = !bad});
  pair.receive(32768, 64);
  const int failed = pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled);
  need((failed != 0) == bad, "ibv_post_send");
  if (!bad) Pair::poll(pair.sender_cq);
  if (!bad) Pair::poll(pair.receiver_cq);
  pair.close();
}

const std::map<std::string_view, void (*)(bool)> cases = {
    {"dead-key", dead_key},
    {"unknown-key", unknown_key},
    {"wrong-domain", wrong_domain},
    {"region-too-small", region_too_small},
    {"missing-right", missing_right},
    {"remote-refused", remote_refused},
    {"changed-send", changed_send},
    {"posted-region", posted_region},
    {"leak", leak},
    {"still-in-use", still_in_use},
    {"destroyed-object", destroyed_object},
    {"wrong-state", wrong_state},
};

}  // namespace

int main(int count, char** words) {
  const auto found = count == 3 ? cases.find(words[1]) : cases.end();
  if (found == cases.end()) {
    for (const auto& [name, run] : cases) std::printf("%s\n", std::string(name).c_str());
    return 2;
  }
  found->second(std::strcmp(words[2], "bad") == 0);
  std::printf("end\n");
  return 0;
}
