// Programs that each break one rule of verbs, and that each nearly do.
//
//   misuse CHECK[.VARIANT] bad|near
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "check/cases.h"
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

// Both ends are in this process, so that the request is reported as well.
void refused_peer(bool bad) {
  Pair pair;
  const unsigned read_only = unsigned{IBV_ACCESS_LOCAL_WRITE} | unsigned{IBV_ACCESS_REMOTE_READ};
  ibv_mr* region = pair.add_region(0, 4096, read_only);
  pair.remote_key = region->rkey;
  const ibv_wr_opcode opcode = bad ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  need(pair.send(opcode, pair.piece(8192, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

// A Read with the key of a region that is deregistered.
void refused_peer_late(bool bad) {
  Pair pair;
  ibv_mr* region = pair.add_region(0, 4096, Pair::all_rights);
  const std::uint32_t key = region->rkey;
  if (bad) need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.remote_key = key;
  need(pair.send(IBV_WR_RDMA_READ, pair.piece(8192, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  if (!bad) need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  pair.close();
}

// A fetch-and-add, whose refusal quotes no memory over TCP.
void refused_peer_atomic(bool bad) {
  Pair pair;
  const unsigned plain = unsigned{IBV_ACCESS_LOCAL_WRITE} | unsigned{IBV_ACCESS_REMOTE_WRITE};
  ibv_mr* region =
      pair.add_region(0, 4096, bad ? plain : plain | unsigned{IBV_ACCESS_REMOTE_ATOMIC});
  ibv_sge piece = pair.piece(8192, 8);
  ibv_send_wr request{};
  request.wr_id = 2;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.send_flags = signaled;
  request.wr.atomic.remote_addr = pair.remote_address;
  request.wr.atomic.rkey = region->rkey;
  ibv_send_wr* failing = nullptr;
  need(ibv_post_send(pair.sender, &request, &failing) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
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

// Memory of its own, because peers may write to that of the pair.
struct OwnMemory {
  explicit OwnMemory(Pair& pair) {
    mr = ibv_reg_mr(pair.pd, words.data(), words.size() * sizeof words[0], IBV_ACCESS_LOCAL_WRITE);
    need(mr != nullptr, "ibv_reg_mr");
  }
  void post(Pair& pair, std::uint64_t id, std::uint32_t bytes) const {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(words.data()), bytes, mr->lkey};
    ibv_recv_wr request{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* failing = nullptr;
    const int failed = pair.srq ? ibv_post_srq_recv(pair.srq, &request, &failing)
                                : ibv_post_recv(pair.receiver, &request, &failing);
    need(failed == 0, "ibv_post_recv");
  }
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(1024);
  ibv_mr* mr = nullptr;
};

// Words of 8 bytes: the receive has 512, and the message 8.
void changed_receive(bool bad) {
  Pair pair;
  OwnMemory own(pair);
  own.post(pair, 1, 4096);
  own.words[bad ? 511 : 512] = 1;
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  own.words[100] = 2;
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

// Another receive for the same memory brings what has changed.
void changed_receive_by_another(bool bad) {
  Pair pair;
  OwnMemory own(pair);
  own.post(pair, 1, 4096);
  if (!bad) own.post(pair, 2, 4096);
  pair.memory[20] = 5;
  for (const std::uint32_t bytes : {64U, bad ? 64U : 4096U}) {
    if (bad) own.words[20] = 5;
    need(pair.send(IBV_WR_SEND, pair.piece(0, bytes), signaled) == 0, "ibv_post_send");
    Pair::poll(pair.sender_cq);
    if (bad) break;
  }
  Pair::poll(pair.receiver_cq);
  if (!bad) Pair::poll(pair.receiver_cq);
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

std::uint64_t read_word(const volatile std::uint64_t& word) {
  return word;
}

// Looks at the message before, or only after, the poll.
void early_access(bool bad) {
  Pair pair;
  OwnMemory own(pair);
  own.post(pair, 1, 4096);
  if (bad) read_word(own.words[0]);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  read_word(own.words[0]);
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

// The same with a shared receive queue: the memory of the second receive, after the completion of
// the first one.
void early_access_of_a_shared_queue(bool bad) {
  Pair pair({.shared = true});
  OwnMemory first(pair);
  OwnMemory second(pair);
  second.post(pair, 1, 4096);
  first.post(pair, 2, 4096);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  const bool is_second = Pair::poll(pair.receiver_cq).wr_id == 1;
  for (const OwnMemory* own : {&first, &second}) {
    if (bad || (own == &second) == is_second) {
      for (const std::uint64_t& word : own->words) read_word(word);
    }
  }
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  need(ibv_dereg_mr(first.mr) == 0 && ibv_dereg_mr(second.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

// Writes into the memory of a receive. The message covers the place, so that it is not seen later.
void early_access_by_write(bool bad) {
  Pair pair;
  OwnMemory own(pair);
  own.post(pair, 1, 64);
  volatile std::uint64_t& first = own.words[0];
  if (bad) first = 1;
  own.words[8] = 1;  // behind the memory of the receive
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  first = 2;
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

void early_access_of_read(bool bad) {
  Pair pair;
  need(pair.send(IBV_WR_RDMA_READ, pair.piece(8192, 64), signaled) == 0, "ibv_post_send");
  if (bad) read_word(pair.memory[1024]);
  Pair::poll(pair.sender_cq);
  read_word(pair.memory[1024]);
  pair.close();
}

// Another thread looks, one that existed at the post or one that is made later.
void look_in_a_thread(bool bad, bool exists, void (*look)(const OwnMemory& own)) {
  Pair pair;
  OwnMemory own(pair);
  std::promise<void> runs;
  std::promise<void> posted;
  std::thread thread;
  const auto begin = [&] {
    thread = std::thread([&] {
      runs.set_value();
      posted.get_future().get();
      look(own);
    });
    runs.get_future().get();  // the C library blocks its signals until it runs
  };
  if (exists) begin();
  own.post(pair, 1, 4096);
  if (!exists) begin();
  if (bad) posted.set_value();
  if (bad) thread.join();
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  if (!bad) posted.set_value();
  if (!bad) thread.join();
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

[[gnu::noinline]] void look_of_early_access_in_a_thread(const OwnMemory& own) {
  read_word(own.words[0]);
}

[[gnu::noinline]] void look_of_early_access_in_a_new_thread(const OwnMemory& own) {
  read_word(own.words[0]);
}

void early_access_in_a_thread(bool bad) {
  look_in_a_thread(bad, true, look_of_early_access_in_a_thread);
}

void early_access_in_a_new_thread(bool bad) {
  look_in_a_thread(bad, false, look_of_early_access_in_a_new_thread);
}

// In the error state the memory is the program's again, also before the completion is polled.
void early_access_after_an_error(bool bad) {
  Pair pair;
  OwnMemory own(pair);
  own.post(pair, 1, 4096);
  volatile std::uint64_t& first = own.words[0];
  if (bad) first = 1;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  need(ibv_modify_qp(pair.receiver, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
  first = 2;
  Pair::poll(pair.receiver_cq);
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

// The same memory is posted again before it is read.
void early_access_after_the_next_post(bool bad) {
  Pair pair;
  OwnMemory own(pair);
  own.post(pair, 1, 4096);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  const auto look = [&] {
    for (const std::uint64_t& word : own.words) read_word(word);
  };
  if (!bad) look();
  own.post(pair, 2, 4096);
  if (bad) look();
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  need(ibv_dereg_mr(own.mr) == 0, "ibv_dereg_mr");
  pair.close();
}

[[gnu::noinline]] std::byte polled_write_flag(const volatile std::byte* flag) {
  return *flag;
}

// The peer writes 64 bytes, and the program waits for the last one; in the other variant it waits
// for the completion of a Send behind the Write, and then reads the byte.
void polled_write(bool bad) {
  constexpr unsigned rounds = 32;
  constexpr unsigned looks = 4;  // before each Write
  constexpr std::size_t source = 8192;
  constexpr std::size_t last = 63;
  Pair pair;
  auto* const bytes = reinterpret_cast<std::byte*>(pair.memory.data());
  for (unsigned round = 1; round <= rounds; ++round) {
    for (unsigned i = 0; i < looks; ++i) polled_write_flag(bytes + last);
    bytes[source + last] = std::byte(round);
    if (!bad) pair.receive(32768, 64);
    need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(source, 64), signaled) == 0, "ibv_post_send");
    if (!bad) need(pair.send(IBV_WR_SEND, pair.piece(0, 0), signaled) == 0, "ibv_post_send");
    if (!bad) Pair::poll(pair.receiver_cq);
    while (polled_write_flag(bytes + last) != std::byte(round)) {
    }
    Pair::poll(pair.sender_cq);
    if (!bad) Pair::poll(pair.sender_cq);
  }
  pair.close();
}

[[gnu::noinline]] std::uint64_t polled_write_counter(const volatile std::uint64_t* counter) {
  return *counter;
}

// Adds one to the first word of the peer.
void add_one(Pair& pair) {
  ibv_sge result = pair.piece(16384, 8);
  ibv_send_wr request{};
  request.sg_list = &result;
  request.num_sge = 1;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.send_flags = signaled;
  request.wr.atomic.remote_addr = pair.remote_address;
  request.wr.atomic.rkey = pair.remote_key;
  request.wr.atomic.compare_add = 1;
  ibv_send_wr* failing = nullptr;
  need(ibv_post_send(pair.sender, &request, &failing) == 0, "ibv_post_send");
}

// A Write brings the data, and a second one the counter for which the program waits; in the other
// variant the counter is changed by an atomic, behind which the data are complete.
void polled_write_of_a_counter(bool bad) {
  constexpr unsigned rounds = 64;
  constexpr std::size_t source = 8192;
  Pair pair;
  std::uint64_t& counter = pair.memory[0];
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (unsigned i = 0; i < 4; ++i) polled_write_counter(&counter);
    pair.memory[source / 8] = round;
    pair.remote_address += 64;
    need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(source, 8), signaled) == 0, "ibv_post_send");
    pair.remote_address -= 64;
    if (bad) {
      need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(source, 8), signaled) == 0, "ibv_post_send");
    } else {
      add_one(pair);
    }
    while (polled_write_counter(&counter) != round) {
    }
    Pair::poll(pair.sender_cq);
    Pair::poll(pair.sender_cq);
  }
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

void unmapped_memory(bool bad) {
  constexpr std::size_t bytes = 8192;
  Pair pair;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(memory != MAP_FAILED, "mmap");
  ibv_mr* region = ibv_reg_mr(pair.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  need(region != nullptr, "ibv_reg_mr");
  // The second page only.
  if (bad) munmap(static_cast<char*>(memory) + bytes / 2, bytes / 2);
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  munmap(memory, bytes);
  pair.close();
}

// A receive that is posted to memory which was returned before.
void unmapped_memory_posted(bool bad) {
  constexpr std::uint32_t bytes = 4096;
  Pair pair;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(memory != MAP_FAILED, "mmap");
  ibv_mr* region = ibv_reg_mr(pair.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  need(region != nullptr, "ibv_reg_mr");
  if (bad) munmap(memory, bytes);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory), bytes, region->lkey};
  ibv_recv_wr request{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* failing = nullptr;
  need(ibv_post_recv(pair.receiver, &request, &failing) == 0, "ibv_post_recv");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  need(ibv_modify_qp(pair.receiver, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
  Pair::poll(pair.receiver_cq);
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  if (!bad) munmap(memory, bytes);
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

// An id that has moved to another channel uses the first one no more.
void still_in_use_after_migration(bool bad) {
  rdma_event_channel* first = rdma_create_event_channel();
  rdma_event_channel* second = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  need(first && second && rdma_create_id(first, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  need(rdma_migrate_id(id, second) == 0, "rdma_migrate_id");
  rdma_destroy_event_channel(bad ? second : first);
  need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  rdma_destroy_event_channel(bad ? first : second);
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

// More receives than the queue holds completions.
void queue_overrun(bool bad) {
  Pair pair({.entries = 4});
  for (int i = 0; i < (bad ? 5 : 4); ++i) pair.receive(32768, 64);
  pair.close();
}

void never_retired(bool bad) {
  constexpr int posts = 33;
  Pair pair({.requests = 32});
  for (int i = 0; i < posts; ++i) {
    const bool asks = !bad && i % 16 == 15;
    const int failed = pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, 8), asks ? signaled : 0);
    need((failed != 0) == (bad && i == posts - 1), "ibv_post_send");
    if (asks) Pair::poll(pair.sender_cq);
  }
  pair.close();
}

void too_few_receives(bool bad) {
  Pair pair({.rnr_retry = 1});
  if (!bad) pair.receive(32768, 64);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  const ibv_wc sent = Pair::poll(pair.sender_cq);
  need((sent.status != IBV_WC_SUCCESS) == bad, "the Send fails without a receive");
  if (!bad) Pair::poll(pair.receiver_cq);
  pair.close();
}

void short_receive(bool bad) {
  Pair pair;
  pair.receive(32768, bad ? 63 : 64);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

// The length of a Send is not defined, and that of a receive is.
void undefined_field(bool bad) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 8;
  wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_IMM;
  Pair pair({.extended = &wanted});
  pair.receive(32768, 64);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  for (ibv_cq* const queue : {pair.sender_cq, pair.receiver_cq}) {
    ibv_cq_ex* const cq = Pair::extended(queue);
    ibv_poll_cq_attr attributes{};
    int failed = ENOENT;
    while (failed == ENOENT) failed = ibv_start_poll(cq, &attributes);
    need(failed == 0 && cq->status == IBV_WC_SUCCESS, "ibv_start_poll");
    const bool received = ibv_wc_read_opcode(cq) == IBV_WC_RECV;
    if (received) need(ibv_wc_read_byte_len(cq) == 64, "ibv_wc_read_byte_len");
    if (bad && !received) need(ibv_wc_read_byte_len(cq) == 0xA5A5A5A5, "ibv_wc_read_byte_len");
    ibv_end_poll(cq);
  }
  pair.close();
}

// After an error there is no opcode.
void undefined_field_after_error(bool bad) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 8;
  wanted.wc_flags = IBV_WC_EX_WITH_QP_NUM;
  Pair pair({.extended = &wanted});
  pair.receive(32768, 64);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  need(ibv_modify_qp(pair.receiver, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
  ibv_cq_ex* const cq = Pair::extended(pair.receiver_cq);
  ibv_poll_cq_attr polling{};
  int failed = ENOENT;
  while (failed == ENOENT) failed = ibv_start_poll(cq, &polling);
  need(failed == 0 && cq->status == IBV_WC_WR_FLUSH_ERR, "ibv_start_poll");
  need(ibv_wc_read_qp_num(cq) == pair.receiver->qp_num, "ibv_wc_read_qp_num");
  if (bad) (void)ibv_wc_read_opcode(cq);
  ibv_end_poll(cq);
  pair.close();
}

void never_polled(bool bad) {
  Pair pair({.channel = true});
  need(ibv_req_notify_cq(pair.sender_cq, 0) == 0, "ibv_req_notify_cq");
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  pair.await_event();
  if (!bad) Pair::poll(pair.sender_cq);
  pair.close();
}

void unacknowledged_event(bool bad) {
  Pair pair({.channel = true});
  need(ibv_req_notify_cq(pair.sender_cq, 0) == 0, "ibv_req_notify_cq");
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  pair.await_event(!bad);
  Pair::poll(pair.sender_cq);
  pair.close();
}

void unacknowledged_event_of_id(bool bad) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  need(channel && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(1);
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  need(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&peer), 1000) == 0,
       "rdma_resolve_addr");
  rdma_cm_event* event = nullptr;
  need(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  if (!bad) need(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
  need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

// Four completions, and one is polled after each event. Many rounds, because all four are in the
// queue at the second event of most rounds, and not of all.
void not_drained(bool bad) {
  constexpr int rounds = 100;
  constexpr int requests = 4;
  Pair pair({.channel = true});
  for (int round = 0; round < rounds; ++round) {
    need(ibv_req_notify_cq(pair.sender_cq, 0) == 0, "ibv_req_notify_cq");
    for (int i = 0; i < requests; ++i) {
      need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
    }
    for (int polled = 0; polled < requests;) {
      pair.await_event();
      need(ibv_req_notify_cq(pair.sender_cq, 0) == 0, "ibv_req_notify_cq");
      ibv_wc completion{};
      while (ibv_poll_cq(pair.sender_cq, 1, &completion) == 1) {
        ++polled;
        if (bad) break;
      }
    }
  }
  pair.close();
}

// The child ends at once. Its registered memory is not used.
void fork_without_init(bool bad) {
  if (!bad) need(ibv_fork_init() == 0, "ibv_fork_init");
  Pair pair;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  need(waitpid(child, nullptr, 0) == child, "waitpid");
  pair.close();
}

void used_in_child(bool bad) {
  need(ibv_fork_init() == 0, "ibv_fork_init");
  Pair pair;
  const pid_t child = fork();
  if (child == 0) {
    if (bad) ibv_dereg_mr(pair.mr);
    if (!bad) Pair().close();
    _exit(0);
  }
  need(waitpid(child, nullptr, 0) == child, "waitpid");
  pair.close();
}

Pair* interrupted = nullptr;
volatile sig_atomic_t requested = 0;

void post_in_handler(int /*signal*/) {
  interrupted->send(IBV_WR_RDMA_WRITE, interrupted->piece(0, 8), signaled);
}

void signal_handler(bool bad) {
  Pair pair;
  interrupted = &pair;
  std::signal(
      SIGUSR1, bad ? post_in_handler : [](int) { requested = 1; });
  std::raise(SIGUSR1);
  if (requested != 0) post_in_handler(0);
  Pair::poll(pair.sender_cq);
  pair.close();
}

void inline_size(bool bad) {
  Pair pair({.inline_bytes = 512});
  const unsigned flags = signaled | unsigned{IBV_SEND_INLINE};
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, bad ? 257 : 256), flags) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  pair.close();
}

// To its own queue pair, which has no receive: datagrams without one are dropped.
void datagram_size(bool bad) {
  Pair pair;
  ibv_port_attr port{};
  need(ibv_query_port(pair.context, 1, &port) == 0, "ibv_query_port");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = pair.sender_cq;
  wanted.qp_type = IBV_QPT_UD;
  wanted.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  ibv_qp* qp = ibv_create_qp(pair.pd, &wanted);
  need(qp != nullptr, "ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.port_num = 1;
  attributes.qkey = 1;
  const int first = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  for (const auto& [state, mask] : {std::pair(IBV_QPS_INIT, first), std::pair(IBV_QPS_RTR, 0),
                                    std::pair(IBV_QPS_RTS, int{IBV_QP_SQ_PSN})}) {
    attributes.qp_state = state;
    need(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask) == 0, "ibv_modify_qp");
  }
  ibv_ah_attr route{};
  route.is_global = 1;
  route.port_num = 1;
  need(ibv_query_gid(pair.context, 1, 0, &route.grh.dgid) == 0, "ibv_query_gid");
  ibv_ah* ah = ibv_create_ah(pair.pd, &route);
  need(ah != nullptr, "ibv_create_ah");
  std::swap(qp, pair.sender);
  const std::uint32_t mtu = 128U << port.active_mtu;
  ibv_sge piece = pair.piece(0, bad ? mtu + 1 : mtu);
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = signaled;
  request.wr.ud = {.ah = ah, .remote_qpn = pair.sender->qp_num, .remote_qkey = 1};
  ibv_send_wr* failing = nullptr;
  if (ibv_post_send(pair.sender, &request, &failing) == 0) Pair::poll(pair.sender_cq);
  std::swap(qp, pair.sender);
  need(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  pair.close();
}

const misuse::Cases own_cases = {
    {"dead-key", dead_key},
    {"unknown-key", unknown_key},
    {"wrong-domain", wrong_domain},
    {"region-too-small", region_too_small},
    {"missing-right", missing_right},
    {"remote-refused", remote_refused},
    {"refused-peer", refused_peer},
    {"refused-peer.late", refused_peer_late},
    {"refused-peer.atomic", refused_peer_atomic},
    {"changed-send", changed_send},
    {"changed-receive", changed_receive},
    {"changed-receive.by-another", changed_receive_by_another},
    {"early-access", early_access},
    {"early-access.by-write", early_access_by_write},
    {"early-access.of-a-shared-queue", early_access_of_a_shared_queue},
    {"early-access.of-read", early_access_of_read},
    {"early-access.in-a-thread", early_access_in_a_thread},
    {"early-access.in-a-new-thread", early_access_in_a_new_thread},
    {"early-access.after-an-error", early_access_after_an_error},
    {"early-access.after-the-next-post", early_access_after_the_next_post},
    {"polled-write", polled_write},
    {"polled-write.of-a-counter", polled_write_of_a_counter},
    {"posted-region", posted_region},
    {"unmapped-memory", unmapped_memory},
    {"unmapped-memory.posted", unmapped_memory_posted},
    {"leak", leak},
    {"still-in-use", still_in_use},
    {"still-in-use.after-migration", still_in_use_after_migration},
    {"destroyed-object", destroyed_object},
    {"wrong-state", wrong_state},
    {"queue-overrun", queue_overrun},
    {"never-retired", never_retired},
    {"too-few-receives", too_few_receives},
    {"short-receive", short_receive},
    {"never-polled", never_polled},
    {"undefined-field", undefined_field},
    {"undefined-field.after-error", undefined_field_after_error},
    {"unacknowledged-event", unacknowledged_event},
    {"unacknowledged-event.of-id", unacknowledged_event_of_id},
    {"not-drained", not_drained},
    {"fork-without-init", fork_without_init},
    {"used-in-child", used_in_child},
    {"signal-handler", signal_handler},
    {"inline-size", inline_size},
    {"datagram-size", datagram_size},
};

}  // namespace

int main(int count, char** words) {
  misuse::Cases cases = own_cases;
  cases.merge(misuse::connection_cases());
  cases.merge(misuse::heap_cases());
  cases.merge(misuse::object_cases());
  cases.merge(misuse::order_cases());
  cases.merge(misuse::queue_cases());
  const auto found = count == 3 ? cases.find(words[1]) : cases.end();
  if (found == cases.end()) {
    for (const auto& [name, run] : cases) std::printf("%s\n", std::string(name).c_str());
    return 2;
  }
  found->second(std::strcmp(words[2], "bad") == 0);
  std::printf("end\n");
  return 0;
}
