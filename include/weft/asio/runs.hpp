// What weft/asio.hpp is made of: tasks that run for operations of Asio.
#pragma once

#include <cerrno>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "weft/asio/common.hpp"
#include "weft/error.hpp"
#include "weft/task.hpp"

namespace weft {
inline namespace WEFT_ASIO_NAMESPACE {
namespace asio_detail {

// The T of a Task<T>; of a Task<void> it is bool, so that there is a value.
template <typename>
struct TaskOf;
template <typename T>
struct TaskOf<Task<T>> {
  using Result = std::conditional_t<std::is_void_v<T>, bool, T>;
};

// How a task has ended: with an exception, with a result, or with neither if a stop was requested.
template <typename Result>
struct AsioEnd {
  std::exception_ptr failed{};
  std::optional<Result> result{};
  bool stopped = false;

  // In Asio's words. An exception that is no Error is a mistake in the program, and is thrown.
  [[nodiscard]] AsioError error() const {
    if (!failed) return asio_error(stopped && !result ? ECANCELED : 0);
    try {
      std::rethrow_exception(failed);
    } catch (const Error& error) {
      return asio_error(error.error_number());
    }
  }
};

// A task, and the handler of the operation that has started it.
class AsioRun {
 public:
  virtual ~AsioRun() = default;
  // Starts the task. In the executor, as the following.
  virtual void begin() = 0;
  // A cancellation slot was used.
  virtual void cancel() = 0;
  // Destroys the task, and ends the operation with ECANCELED.
  virtual void abort() = 0;
  // Destroys the task, and the handler without a call.
  virtual void discard() = 0;
};

class AsioRuns;

// The AsioRuns of one execution context. With its end their handlers are destroyed, as those of
// Asio's own objects are.
class AsioRunsService final : public net::execution_context::service {
 public:
  using key_type = AsioRunsService;
  inline static net::execution_context::id id;

  explicit AsioRunsService(net::execution_context& context)
      : net::execution_context::service(context) {}

  void add(AsioRuns& runs) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&runs);
  }
  void remove(AsioRuns& runs) {
    const std::lock_guard lock(mutex_);
    all_.remove(&runs);
  }

 private:
  void shutdown() override;

  std::mutex mutex_;
  std::list<AsioRuns*> all_;
};

// The tasks of one AsioExecutor that have not ended.
class AsioRuns : public std::enable_shared_from_this<AsioRuns> {
 public:
  explicit AsioRuns(net::any_io_executor executor)
      : executor_(std::move(executor)),
        service_(
            &net::use_service<AsioRunsService>(net::query(executor_, net::execution::context))) {
    service_->add(*this);
  }

  [[nodiscard]] const net::any_io_executor& executor() const { return executor_; }

  // The operation begins in the executor, so that its handler is not called from here.
  void start(const std::shared_ptr<AsioRun>& run) {
    std::unique_lock lock(mutex_);
    runs_.push_back(run);
    lock.unlock();
    net::post(executor_, [run] { run->begin(); });
  }
  void remove(const AsioRun* run) {
    std::list<std::shared_ptr<AsioRun>> removed;
    const std::lock_guard lock(mutex_);
    for (auto at = runs_.begin(); at != runs_.end(); ++at) {
      if (at->get() != run) continue;
      return removed.splice(removed.begin(), runs_, at);
    }
  }
  void for_each(void (AsioRun::*call)()) {
    std::unique_lock lock(mutex_);
    const auto all = runs_;
    lock.unlock();
    for (const auto& run : all) std::invoke(call, *run);
  }

  // The AsioExecutor is destroyed.
  void close() {
    for_each(&AsioRun::abort);
    if (AsioRunsService* const service = std::exchange(service_, nullptr)) service->remove(*this);
  }
  // The execution context ends.
  void shut_down() {
    service_ = nullptr;
    for_each(&AsioRun::discard);
  }

 private:
  const net::any_io_executor executor_;
  AsioRunsService* service_;  // null after the end of the execution context, or of the executor
  std::mutex mutex_;
  std::list<std::shared_ptr<AsioRun>> runs_;
};

// A handler that is destroyed may destroy other objects of this context.
inline void AsioRunsService::shutdown() {
  while (true) {
    std::shared_ptr<AsioRuns> runs;
    {
      const std::lock_guard lock(mutex_);
      if (all_.empty()) return;
      runs = all_.front()->shared_from_this();
      all_.pop_front();
    }
    runs->shut_down();
  }
}

// The part that does not depend on the handler: GCC warns where the frame of a coroutine has a type
// of a function's own, as the lambdas of programs are.
template <typename Result>
class AsioRunTask : public AsioRun, public std::enable_shared_from_this<AsioRunTask<Result>> {
 public:
  virtual void finish(AsioEnd<Result> end) = 0;

 protected:
  template <typename T>
  void start(Task<T> task) {
    tasks_.start(std::move(task), Finish{this->shared_from_this()});
  }
  [[nodiscard]] std::stop_source& stop() { return stop_; }
  void destroy_task() { tasks_.clear(); }

 private:
  struct Finish {
    std::shared_ptr<AsioRunTask> run;
    // Of a Task<void>.
    void operator()(const std::exception_ptr& failed) const {
      run->finish({failed, failed ? std::optional<Result>() : Result(), run->is_stopped()});
    }
    void operator()(const std::exception_ptr& failed, std::optional<Result> result) const {
      run->finish({failed, std::move(result), run->is_stopped()});
    }
  };
  [[nodiscard]] bool is_stopped() const { return stop_.stop_requested(); }

  std::stop_source stop_;
  TaskSet tasks_;  // with one task
};

// `make(stop)` returns the task, and `deliver(handler, end)` calls the handler. With `gentle` a
// cancellation requests the stop, otherwise it destroys the task.
template <typename Result, typename Handler, typename Make, typename Deliver, bool gentle>
class AsioRunOf final : public AsioRunTask<Result> {
 public:
  AsioRunOf(std::shared_ptr<AsioRuns> runs, Handler handler, Make make, Deliver deliver)
      : runs_(std::move(runs)),
        held_(std::in_place, std::move(handler), runs_->executor()),
        make_(std::move(make)),
        deliver_(std::move(deliver)) {}

  void begin() override {
    if (!held_) return;
    try {
      this->start(make_(this->stop().get_token()));
    } catch (...) {
      finish({std::current_exception(), {}, false});
    }
  }
  void cancel() override {
    if (!gentle) return abort();
    this->stop().request_stop();
  }
  void abort() override {
    if (!held_) return;
    const auto self = this->shared_from_this();
    this->destroy_task();
    finish({std::make_exception_ptr(Error(ECANCELED, "the operation was cancelled")), {}, true});
  }
  void discard() override {
    const auto self = this->shared_from_this();
    this->destroy_task();
    runs_->remove(this);
    // The handler may own what owns this.
    const auto destroyed = std::exchange(held_, std::nullopt);
  }
  void finish(AsioEnd<Result> end) override {
    std::optional<Held> held = std::exchange(held_, std::nullopt);
    const auto self = this->shared_from_this();
    runs_->remove(this);
    if (!held) return;
    const auto executor = held->executor;
    const auto works = std::make_pair(held->work, held->handler_work);
    net::post(executor, [handler = std::move(held->handler), deliver = std::move(deliver_),
                         end = std::move(end)]() mutable { deliver(handler, end); });
  }

 private:
  using HandlerExecutor = net::associated_executor_t<Handler, net::any_io_executor>;
  // The handler, and outstanding work of both executors until it is in its queue.
  struct Held {
    Held(Handler called, const net::any_io_executor& own)
        : handler(std::move(called)),
          executor(net::get_associated_executor(handler, own)),
          work(own),
          handler_work(executor) {}
    Handler handler;
    HandlerExecutor executor;
    net::executor_work_guard<net::any_io_executor> work;
    net::executor_work_guard<HandlerExecutor> handler_work;
  };

  std::shared_ptr<AsioRuns> runs_;
  std::optional<Held> held_;  // nothing when the operation has ended
  Make make_;
  Deliver deliver_;
};

// Starts an operation, and connects it with the cancellation slot of its handler.
template <bool gentle, typename Handler, typename Make, typename Deliver>
void start_run(const std::shared_ptr<AsioRuns>& runs, Handler handler, Make make, Deliver deliver) {
#if WEFT_ASIO_VERSION >= 102000
  auto slot = net::get_associated_cancellation_slot(handler);
#endif
  using Result = typename TaskOf<std::invoke_result_t<Make&, std::stop_token>>::Result;
  using Run = AsioRunOf<Result, Handler, Make, Deliver, gentle>;
  const auto run =
      std::make_shared<Run>(runs, std::move(handler), std::move(make), std::move(deliver));
#if WEFT_ASIO_VERSION >= 102000
  if (slot.is_connected()) {
    slot.assign([weak = std::weak_ptr<AsioRun>(run),
                 executor = runs->executor()](net::cancellation_type type) {
      if (type == net::cancellation_type::none) return;
      // Later, because the task itself may have caused it.
      if (auto cancelled = weak.lock()) net::post(executor, [cancelled] { cancelled->cancel(); });
    });
  }
#endif
  runs->start(run);
}

}  // namespace asio_detail
}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft
