// What weft/stream/asio.hpp is made of: streams whose operations wait in an executor of Asio.
#pragma once

#ifdef WEFT_USE_BOOST_ASIO
#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#else
#include <asio/buffer.hpp>
#include <asio/compose.hpp>
#include <asio/dispatch.hpp>
#include <asio/posix/stream_descriptor.hpp>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "weft/asio/common.hpp"
#include "weft/deadline.hpp"
#include "weft/error.hpp"
#include "weft/stream.hpp"

namespace weft {
inline namespace WEFT_ASIO_NAMESPACE {
namespace asio_detail {

// What a Transfer is in Asio's words; `would_block` is asio::error::would_block.
inline AsioError asio_error(const stream::Transfer& outcome) {
  switch (outcome.status) {
    case stream::TransferStatus::ok:
      return {};
    case stream::TransferStatus::would_block:
      return net::error::would_block;
    case stream::TransferStatus::end:
      return net::error::eof;
    case stream::TransferStatus::failed:
      break;
  }
  return asio_error(outcome.error_number);
}

// Begins with the non-empty buffers of a sequence. More than these are left to the next call: that
// is what "some" means.
template <typename Byte>
struct AsioPieces {
  static constexpr std::size_t most = 16;

  template <typename Buffers>
  explicit AsioPieces(const Buffers& buffers) {
    for (auto at = net::buffer_sequence_begin(buffers); at != net::buffer_sequence_end(buffers);
         ++at) {
      using Buffer =
          std::conditional_t<std::is_const_v<Byte>, net::const_buffer, net::mutable_buffer>;
      const Buffer buffer(*at);
      if (buffer.size() == 0) continue;
      if (count == most) break;
      pieces[count++] = {static_cast<Byte*>(buffer.data()), buffer.size()};
    }
  }
  [[nodiscard]] std::span<const std::span<Byte>> all() const {
    return std::span(pieces).first(count);
  }

  std::array<std::span<Byte>, most> pieces{};
  std::size_t count = 0;
};

inline stream::Transfer transfer_some(stream::Stream& stream, const AsioPieces<std::byte>& pieces,
                                      Deadline deadline) {
  return pieces.count == 0 ? stream::Transfer{} : stream.receive(pieces.all(), deadline);
}
inline stream::Transfer transfer_some(stream::Stream& stream,
                                      const AsioPieces<const std::byte>& pieces,
                                      Deadline deadline) {
  return pieces.count == 0 ? stream::Transfer{} : stream.send(pieces.all(), deadline);
}

// An operation that was started. Its handler is called exactly once, or destroyed with the
// operation where the execution context ends first.
class AsioOperation {
 public:
  AsioOperation() = default;
  AsioOperation(const AsioOperation&) = delete;
  AsioOperation& operator=(const AsioOperation&) = delete;
  virtual ~AsioOperation() = default;

  // Does what can be done without waiting; false if it has to wait. Throws Error.
  [[nodiscard]] virtual bool attempt(stream::Stream& stream) = 0;
  // Calls the handler: with post(), or with dispatch() if `within` the stream's executor.
  virtual void finish(std::unique_ptr<AsioOperation> self, bool within) = 0;

  AsioError error{};
  std::uint64_t number = 0;  // see AsioStreamCore::cancel()
};

// `Result`: what the handler gets behind the error, in a tuple.
template <typename Handler, typename... Result>
class AsioOperationOf : public AsioOperation {
 public:
  AsioOperationOf(Handler handler, const net::any_io_executor& executor)
      : handler_(std::move(handler)),
        executor_(net::get_associated_executor(handler_, executor)),
        work_(executor),
        handler_work_(executor_) {}

  void finish(std::unique_ptr<AsioOperation> self, bool within) override {
    auto call = [handler = std::move(handler_), error = this->error,
                 result = std::move(result_)]() mutable {
      std::apply([&](auto&... values) { handler(error, std::move(values)...); }, result);
    };
    // Outstanding work of both executors until the handler is in its queue.
    const auto work = std::make_tuple(work_, handler_work_);
    const auto executor = executor_;
    self.reset();
    if (within) {
      net::dispatch(executor, std::move(call));
    } else {
      net::post(executor, std::move(call));
    }
  }

 protected:
  std::tuple<Result...> result_{};

 private:
  using HandlerExecutor = net::associated_executor_t<Handler, net::any_io_executor>;
  Handler handler_;
  HandlerExecutor executor_;
  net::executor_work_guard<net::any_io_executor> work_;
  net::executor_work_guard<HandlerExecutor> handler_work_;
};

// Receives into mutable buffers, or sends const ones.
template <typename Byte, typename Handler, typename Buffers>
class AsioTransfer final : public AsioOperationOf<Handler, std::size_t> {
 public:
  AsioTransfer(Handler handler, const net::any_io_executor& executor, const Buffers& buffers)
      : AsioOperationOf<Handler, std::size_t>(std::move(handler), executor), buffers_(buffers) {}

  bool attempt(stream::Stream& stream) override {
    const auto outcome = transfer_some(stream, AsioPieces<Byte>(buffers_), Deadline::now());
    if (outcome.would_block()) return false;
    this->error = asio_error(outcome);
    std::get<0>(this->result_) = outcome.bytes;
    return true;
  }

 private:
  Buffers buffers_;
};

template <typename Handler>
class AsioConnect final : public AsioOperationOf<Handler> {
 public:
  AsioConnect(Handler handler, const net::any_io_executor& executor, stream::Address peer)
      : AsioOperationOf<Handler>(std::move(handler), executor), peer_(std::move(peer)) {}

  bool attempt(stream::Stream& stream) override {
    if (stream.state() == stream::State::idle) stream.start_connecting(peer_);
    if (stream.state() == stream::State::connecting) return false;
    this->error =
        asio_error(stream.state() == stream::State::closed ? ECANCELED : stream.error_number());
    return true;
  }

 private:
  stream::Address peer_;
};

class AsioStreamCore;

// The streams of one execution context. With its end their handlers are destroyed, as those of
// Asio's own objects are.
class AsioStreams final : public net::execution_context::service {
 public:
  using key_type = AsioStreams;
  inline static net::execution_context::id id;

  explicit AsioStreams(net::execution_context& context)
      : net::execution_context::service(context) {}

  void add(AsioStreamCore& core) {
    const std::lock_guard lock(mutex_);
    cores_.push_back(&core);
  }
  void remove(AsioStreamCore& core) {
    const std::lock_guard lock(mutex_);
    cores_.remove(&core);
  }

 private:
  void shutdown() override;

  std::mutex mutex_;
  std::list<AsioStreamCore*> cores_;
};

// A stream and the operations that wait for it. A thread of the library reports when it is ready,
// and the operations go on in the executor.
class AsioStreamCore final : public stream::Stream::Watcher,
                             public std::enable_shared_from_this<AsioStreamCore> {
 public:
  enum class Queue : std::uint8_t { connect, receive, send };

  AsioStreamCore(net::any_io_executor executor, stream::Stream stream)
      : executor_(std::move(executor)),
        service_(&net::use_service<AsioStreams>(net::query(executor_, net::execution::context))),
        stream_(std::make_shared<stream::Stream>(std::move(stream))) {
    service_->add(*this);
  }

  [[nodiscard]] const net::any_io_executor& executor() const { return executor_; }
  [[nodiscard]] stream::Stream& stream() { return *stream_; }

  // Returns the operation's number, or 0 if it need not wait.
  std::uint64_t start(Queue queue, std::unique_ptr<AsioOperation> operation) {
    std::unique_lock lock(mutex_);
    const bool first = waiting(queue).empty();
    lock.unlock();
    // Operations of one direction are carried out in their order.
    if (first && attempt(*stream_, *operation)) {
      finish(std::move(operation), false);
      return 0;
    }
    watch();
    lock.lock();
    const std::uint64_t number = operation->number = ++last_number_;
    waiting(queue).push_back(std::move(operation));
    lock.unlock();
    resume_if_ready(queue, *stream_);
    return number;
  }

  // Ends the operation with this number, or all with 0, with asio::error::operation_aborted.
  void cancel(std::uint64_t number) {
    std::deque<std::unique_ptr<AsioOperation>> ended;
    std::unique_lock lock(mutex_);
    for (auto& queue : waiting_) {
      std::deque<std::unique_ptr<AsioOperation>> left;
      for (auto& operation : queue) {
        const bool ends = number == 0 || operation->number == number;
        (ends ? ended : left).push_back(std::move(operation));
      }
      queue = std::move(left);
    }
    lock.unlock();
    for (auto& operation : ended) {
      operation->error = net::error::operation_aborted;
      finish(std::move(operation), false);
    }
  }

  // The program has destroyed its handle.
  void abandon() {
    cancel(0);
    if (AsioStreams* const service = std::exchange(service_, nullptr)) service->remove(*this);
    release();
  }

  // The execution context ends.
  void shut_down() {
    service_ = nullptr;
    unwatch();
    // A handler may own the stream, whose destructor takes the lock.
    std::unique_lock lock(mutex_);
    const auto destroyed = std::exchange(waiting_, {});
    lock.unlock();
  }

  void changed(const stream::Stream::Readiness& now) noexcept override {
    for (const Queue queue : {Queue::connect, Queue::receive, Queue::send}) {
      if (is_ready(queue, now)) resume(queue);
    }
  }

 private:
  [[nodiscard]] std::deque<std::unique_ptr<AsioOperation>>& waiting(Queue queue) {
    return waiting_[static_cast<std::size_t>(queue)];
  }
  [[nodiscard]] static bool is_ready(Queue queue, const stream::Stream::Readiness& now) {
    if (queue == Queue::connect) return now.settled;
    return now.over || (queue == Queue::receive ? now.readable : now.writable);
  }

  [[nodiscard]] static bool attempt(stream::Stream& stream, AsioOperation& operation) {
    try {
      return operation.attempt(stream);
    } catch (const Error& error) {
      operation.error = asio_error(error.error_number());
      return true;
    }
  }
  static void finish(std::unique_ptr<AsioOperation> operation, bool within) {
    AsioOperation& ended = *operation;
    ended.finish(std::move(operation), within);
  }

  void watch() {
    if (!std::exchange(watching_, true)) static_cast<void>(stream_->watch(this));
  }
  void unwatch() {
    if (std::exchange(watching_, false)) stream_->unwatch(this);
  }
  // The stream is closed here, or by a call of advance() that runs in another thread.
  void release() {
    unwatch();
    std::unique_lock lock(mutex_);
    const auto released = std::move(stream_);
    lock.unlock();
  }

  // For what has changed before the operation waited.
  void resume_if_ready(Queue queue, stream::Stream& stream) {
    if (is_ready(queue, stream.readiness())) resume(queue);
  }
  void resume(Queue queue) {
    const std::lock_guard lock(mutex_);
    if (waiting(queue).empty()) return;
    if (std::exchange(resumed_[static_cast<std::size_t>(queue)], true)) return;
    net::post(executor_, [core = shared_from_this(), queue] { core->advance(queue); });
  }

  // Carries out what can be carried out.
  void advance(Queue queue) {
    while (true) {
      std::unique_lock lock(mutex_);
      resumed_[static_cast<std::size_t>(queue)] = false;
      const auto stream = stream_;
      if (!stream || waiting(queue).empty()) return;
      std::unique_ptr<AsioOperation> operation = std::move(waiting(queue).front());
      waiting(queue).pop_front();
      lock.unlock();
      if (attempt(*stream, *operation)) {
        finish(std::move(operation), true);
        continue;
      }
      lock.lock();
      waiting(queue).push_front(std::move(operation));
      lock.unlock();
      return resume_if_ready(queue, *stream);
    }
  }

  const net::any_io_executor executor_;
  AsioStreams* service_;  // null after the end of the execution context, or of the handle
  std::shared_ptr<stream::Stream> stream_;
  bool watching_ = false;
  std::mutex mutex_;  // of what follows; not held while the stream is called
  std::array<std::deque<std::unique_ptr<AsioOperation>>, 3> waiting_;
  std::array<bool, 3> resumed_{};  // advance() is in the executor's queue
  std::uint64_t last_number_ = 0;
};

// A handler that is destroyed may destroy streams of this context.
inline void AsioStreams::shutdown() {
  while (true) {
    std::shared_ptr<AsioStreamCore> core;
    {
      const std::lock_guard lock(mutex_);
      if (cores_.empty()) return;
      core = cores_.front()->shared_from_this();
      cores_.pop_front();
    }
    core->shut_down();
  }
}

}  // namespace asio_detail
}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft
