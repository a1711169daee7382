// The times of the stream thread.
#include "stream/stream_thread.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "weft/deadline.hpp"

namespace weft::stream::detail {
namespace {

using namespace std::chrono_literals;

class CountedCalls final : public IoHandler {
 public:
  void on_io() noexcept override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    called_.notify_all();
  }
  [[nodiscard]] bool await(int calls) {
    std::unique_lock lock(mutex_);
    return called_.wait_for(lock, 60s, [&] { return calls_ >= calls; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable called_;
  int calls_ = 0;
};

// Nothing else wakes the thread here. The pause lets it fall asleep; without that the time is found
// in any case.
TEST(StreamThread, ANewTimeWakesTheThread) {
  StreamThread& thread = StreamThread::instance();
  const auto handler = std::make_shared<CountedCalls>();
  const auto token = thread.add(handler);
  for (int call = 1; call <= 5; ++call) {
    poll(nullptr, 0, 20);
    thread.wake_at(token, steady_now() + 1ms);
    ASSERT_TRUE(handler->await(call)) << "the thread sleeps on";
  }
  // An earlier one than the thread waits for, too.
  thread.wake_at(token, steady_now() + 1h);
  poll(nullptr, 0, 20);
  thread.wake_at(token, steady_now() + 1ms);
  EXPECT_TRUE(handler->await(6));
  thread.remove(token, {});
}

}  // namespace
}  // namespace weft::stream::detail
