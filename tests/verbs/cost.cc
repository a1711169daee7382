// The data path twice: as a C program writes it, and through the C++ types. cost_test.py runs both
// under callgrind and compares their instruction counts. The device is replaced by functions that
// do nothing.
#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "weft/verbs.hpp"

namespace {

thread_local std::size_t allocations = 0;

using namespace weft::verbs;  // NOLINT(google-build-using-namespace)

struct Sides {
  Context context = open_device();
  ProtectionDomain domain = context.create_domain();
  CompletionQueue queue = context.create_completion_queue(16);
  TypedRegion<std::byte> region = domain.allocate<std::byte>(64, Access::all);
  QueuePair queue_pair = [this] {
    auto prepared = domain.queue_pair(queue, queue).access(Access::all).build();
    const Endpoint self = prepared.endpoint();
    return std::move(prepared).handshake(self);
  }();
};

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* made = std::malloc(bytes)) return made;
  throw std::bad_alloc();
}
void operator delete(void* made) noexcept {
  std::free(made);
}
void operator delete(void* made, std::size_t /*bytes*/) noexcept {
  std::free(made);
}

extern "C" {

[[gnu::noinline]] int post_send_c(ibv_qp* qp, ibv_sge* piece, std::uint64_t id) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

[[gnu::noinline]] int post_send_cpp(const QueuePair& queue_pair, const LocalSlice& from,
                                    std::uint64_t id) {
  return queue_pair.post_send(from, id);
}

[[gnu::noinline]] int post_receive_c(ibv_qp* qp, ibv_sge* piece, std::uint64_t id) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &request, &bad);
}

[[gnu::noinline]] int post_receive_cpp(const QueuePair& queue_pair, const LocalSlice& into,
                                       std::uint64_t id) {
  return queue_pair.post_receive(into, id);
}

// Compares with the size of the granted memory, as a careful C program does and
// QueuePair::post_write() does.
[[gnu::noinline]] int post_write_c(ibv_qp* qp, ibv_sge* piece, const RemoteSlice* to,
                                   std::uint64_t id) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = to->address();
  request.wr.rdma.rkey = to->rkey();
  if (piece->length > to->size_bytes()) return EMSGSIZE;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

[[gnu::noinline]] int post_write_cpp(const QueuePair& queue_pair, const LocalSlice& from,
                                     const RemoteSlice& to, std::uint64_t id) {
  return queue_pair.post_write(from, to, id);
}

// Treats a failed poll as an empty one, as CompletionQueue::poll() does.
[[gnu::noinline]] std::size_t poll_c(ibv_cq* cq, ibv_wc* into, int most) {
  const int got = ibv_poll_cq(cq, most, into);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

[[gnu::noinline]] std::size_t poll_cpp(const CompletionQueue& queue, Completion* into,
                                       std::size_t most) {
  return queue.poll({into, most}).size();
}

}  // extern "C"

namespace {

constexpr int rounds = 1000;

// Replaces the device's functions, so that only the layer above them is measured.
void replace_device(ibv_context& context) {
  context.ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return 0; };
  context.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; };
  context.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 1; };
}

bool one_round(const Sides& sides, LocalSlice slice, const RemoteSlice& remote) {
  ibv_sge piece = slice.raw();
  ibv_qp* qp = sides.queue_pair.raw();
  std::array<ibv_wc, 4> raw_done;
  std::array<Completion, 4> done;
  const bool failed = post_receive_c(qp, &piece, 1) || post_send_c(qp, &piece, 2) ||
                      post_write_c(qp, &piece, &remote, 3) ||
                      post_receive_cpp(sides.queue_pair, slice, 1) ||
                      post_send_cpp(sides.queue_pair, slice, 2) ||
                      post_write_cpp(sides.queue_pair, slice, remote, 3);
  return !failed && poll_c(sides.queue.raw(), raw_done.data(), 4) == 1 &&
         poll_cpp(sides.queue, done.data(), done.size()) == 1;
}

}  // namespace

int main() {
  try {
    const Sides sides;
    const LocalSlice slice = sides.region.slice(0, 8);
    const RemoteSlice remote = sides.region.remote();
    const auto operations = sides.context.raw()->ops;
    replace_device(*sides.context.raw());
    const std::size_t before = allocations;
    for (int i = 0; i < rounds; ++i) {
      if (!one_round(sides, slice, remote)) return 1;
    }
    const std::size_t made = allocations - before;
    sides.context.raw()->ops = operations;
    std::printf("allocations %zu\nrounds %d\n", made, rounds);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cost: %s\n", error.what());
    return 1;
  }
}
