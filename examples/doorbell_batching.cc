// Many small writes, posted one by one and in batches with one doorbell each. Only the last write
// of a batch is signaled: its completion covers the writes before it.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <weft/verbs.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::verbs;  // NOLINT(google-build-using-namespace)

constexpr std::size_t writes = 4096;
constexpr std::size_t batch_size = 32;
constexpr std::uint32_t write_bytes = 8;

// A queue pair that is connected to itself, with memory for both roles.
struct Loop {
  Context context = open_device();
  ProtectionDomain domain = context.create_domain();
  CompletionQueue queue = context.create_completion_queue(2 * batch_size);
  TypedRegion<std::uint64_t> from = domain.allocate<std::uint64_t>(writes);
  TypedRegion<std::uint64_t> to = domain.allocate<std::uint64_t>(writes, Access::remote_write);
  QueuePair queue_pair = [this] {
    auto prepared = domain.queue_pair(queue, queue)
                        .max_send_requests(2 * batch_size)
                        .access(Access::remote_write)
                        .build();
    const Endpoint self = prepared.endpoint();
    return std::move(prepared).handshake(self);
  }();
};

void await_one(const Loop& loop) {
  std::array<Completion, 1> done;
  const auto got = loop.queue.wait(done, 10s);
  if (got.empty() || !got[0].ok()) throw std::runtime_error("a write has failed");
}

void one_by_one(const Loop& loop) {
  for (std::size_t i = 0; i < writes; ++i) {
    const bool last = (i + 1) % batch_size == 0;
    const auto flags = last ? SendFlags::signaled : SendFlags::none;
    const auto target = loop.to.remote().slice(i * write_bytes, write_bytes);
    if (loop.queue_pair.post_write(loop.from.slice(i, 1), target, i, flags) != 0) {
      throw std::runtime_error("cannot post");
    }
    if (last) await_one(loop);
  }
}

void in_batches(const Loop& loop) {
  auto batch = loop.queue_pair.batch<batch_size>();
  for (std::size_t i = 0; i < writes; ++i) {
    const bool last = (i + 1) % batch_size == 0;
    const auto flags = last ? SendFlags::signaled : SendFlags::none;
    batch.write(loop.from.slice(i, 1), loop.to.remote().slice(i * write_bytes, write_bytes), i,
                flags);
    if (!last) continue;
    if (batch.submit() != 0) throw std::runtime_error("cannot post a batch");
    await_one(loop);
  }
}

template <typename Work>
void measure(const char* name, const Loop& loop, const Work& work) {
  for (std::size_t i = 0; i < writes; ++i) {
    loop.from[i] = i + 1;
    loop.to[i] = 0;
  }
  const auto start = std::chrono::steady_clock::now();
  work(loop);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  for (std::size_t i = 0; i < writes; ++i) {
    if (loop.to[i] != i + 1) throw std::runtime_error("a write is missing");
  }
  std::printf("%s: %zu writes, %.2f us each\n", name, writes, took.count() / writes);
}

}  // namespace

int main() {
  try {
    const Loop loop;
    measure("one by one", loop, one_by_one);
    measure("in batches", loop, in_batches);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "doorbell_batching: %s\n", error.what());
    return 1;
  }
}
