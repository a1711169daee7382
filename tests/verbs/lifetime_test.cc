// Objects may be destroyed in any order, and used by several threads at once.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "support/device.h"
#include "support/needs.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

TEST(Lifetime, AConnectionMayGoInAnyOrder) {
  for (int first = 0; first < 4; ++first) {
    Pair pair;
    ASSERT_EQ(pair.a->queue_pair.post_receive(pair.a->region.slice(0, 8), 1), 0);
    if (first == 0) pair.a.reset();
    if (first == 1) pair.b.reset();
    if (first == 2) pair.events = EventChannel();
    if (first == 3) pair.b->id.disconnect();
  }
}

TEST(Lifetime, AQueuePairKeepsWhatItNeeds) {
  Pair pair;
  QueuePair survivor = std::move(pair.a->queue_pair);
  const auto memory = pair.a->domain.allocate<char>(8);
  CompletionQueue queue = std::move(pair.a->queue);
  pair.a.reset();
  ASSERT_EQ(survivor.post_write(memory.slice(), pair.b->region.remote().slice(0, 8), 3), 0);
  std::array<Completion, 1> one;
  const auto got = queue.wait(one, patience);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(got[0].ok()) << got[0].status_name();
}

// One of several threads that create, use and destroy objects at the same time.
class Worker {
 public:
  Worker(const Context& context, const ProtectionDomain& domain, const CompletionQueue& shared)
      : context_(context), domain_(domain), shared_(shared) {}

  // Destroys a queue pair right after posting to it. Any thread that polls the shared queue may get
  // its completions, and there may be none.
  void leave_in_the_middle() {
    const auto region = domain_.allocate<char>(64, Access::all);
    const QueuePair queue_pair = connected_to_itself(shared_);
    EXPECT_EQ(queue_pair.post_receive(region.slice(0, 8), 1), 0);
    EXPECT_EQ(queue_pair.post_send(region.slice(8, 8), 2), 0);
    EXPECT_EQ(queue_pair.post_write(region.slice(8, 8), region.remote().slice(16, 8), 3), 0);
  }
  // Waits for its own completions and then destroys everything.
  void finish() {
    const auto channel = context_.create_channel();
    const auto queue = context_.create_completion_queue(8, {.channel = &channel});
    auto region = domain_.allocate<char>(64, Access::all);
    region[8] = 'x';
    const QueuePair queue_pair = connected_to_itself(queue);
    EXPECT_EQ(queue_pair.post_write(region.slice(8, 8), region.remote().slice(16, 8), 3), 0);
    std::array<Completion, 1> one;
    const auto got = queue.wait(one, patience);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_TRUE(got[0].ok()) << got[0].status_name();
    EXPECT_EQ(region[16], 'x');
  }

 private:
  [[nodiscard]] QueuePair connected_to_itself(const CompletionQueue& queue) const {
    auto builder = domain_.queue_pair(queue, queue);
    builder.access(Access::all).max_send_requests(4).max_receive_requests(4);
    auto prepared = builder.build();
    const Endpoint endpoint = prepared.endpoint();
    return std::move(prepared).handshake(endpoint);
  }

  const Context& context_;
  const ProtectionDomain& domain_;
  const CompletionQueue& shared_;
};

TEST(Lifetime, ThreadsPostPollAndDestroyAtOnce) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  WEFT_NEEDS(context.create_domain().allocate_window());
  const auto domain = context.create_domain();
  const auto shared = context.create_completion_queue(1024);
  constexpr int each = 25;
  std::atomic<int> busy{3};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      Worker worker(context, domain, shared);
      for (int i = 0; i < each; ++i) {
        if ((thread + i) % 2 == 0) worker.leave_in_the_middle();
        worker.finish();
      }
      --busy;
    });
  }
  threads.emplace_back([&] {
    std::array<Completion, 8> some;
    while (busy > 0) {
      for (const Completion& completion : shared.poll(some)) {
        EXPECT_TRUE(completion.ok() || completion.status() == IBV_WC_WR_FLUSH_ERR)
            << completion.status_name();
      }
      std::this_thread::yield();
    }
  });
  threads.emplace_back([&] {
    while (busy > 0) {
      const auto own = test::open_device();
      const auto other = own.create_domain();
      const auto receives = other.create_shared_receive_queue({.receives = 4});
      const auto window = domain.allocate_window();
    }
  });
  for (auto& thread : threads) thread.join();
}

TEST(Lifetime, ThreadsShareAQueuePairAndItsQueue) {
  Pair pair;
  constexpr int threads = 4;
  constexpr int each = 500;
  std::atomic<int> posted{0};
  std::atomic<int> completed{0};
  std::vector<std::thread> posters;
  for (int thread = 0; thread < threads; ++thread) {
    posters.emplace_back([&, thread] {
      const auto from = pair.a->domain.allocate<char>(64);
      const auto to = pair.b->region.remote().slice(static_cast<std::uint64_t>(thread) * 64, 64);
      std::array<Completion, 8> some;
      for (int i = 0; i < each; ++i) {
        // Limits the requests in flight to the room in the completion queue.
        while (++posted - completed > 100 ||
               pair.a->queue_pair.post_write(from.slice(), to, 1) == ENOMEM) {
          --posted;
          completed += static_cast<int>(pair.a->queue.poll(some).size());
        }
      }
      while (completed < threads * each) {
        completed += static_cast<int>(pair.a->queue.poll(some).size());
      }
    });
  }
  for (auto& poster : posters) poster.join();
  EXPECT_EQ(completed, threads * each);
}

}  // namespace
}  // namespace weft::verbs::testing
