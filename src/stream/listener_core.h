// ListenerCore: the implementation of a Listener. It answers the requests that cannot become
// streams itself, and passes the others to next() or to an event queue.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "stream/accept_queue.h"
#include "stream/connector.h"
#include "stream/event_queue_core.h"
#include "stream/fork_handler.h"
#include "stream/observed.h"
#include "stream/stream_thread.h"
#include "weft/stream/listener.hpp"

namespace weft::stream::detail {

class ListenerCore;

// Counts the requests of an attachment, so that peers cannot fill the queue without a limit.
// Thread-safe.
class UntakenRequests final : public QueuedRequests {
 public:
  // Further requests wait in the backlog of the listener.
  static constexpr std::size_t most = 128;

  explicit UntakenRequests(std::weak_ptr<ListenerCore> listener) : listener_(std::move(listener)) {}

  [[nodiscard]] bool full() const { return count_ >= most; }
  void note_queued() { ++count_; }
  void note_taken() override;

 private:
  const std::weak_ptr<ListenerCore> listener_;
  std::atomic<std::size_t> count_{0};
};

// Thread-safe. Kept alive by the handle; the stream thread only holds a weak reference.
class ListenerCore final : public IoHandler, public std::enable_shared_from_this<ListenerCore> {
 public:
  ListenerCore(const Address& address, const Options& options);
  explicit ListenerCore(const Options& options);  // for adopt() only
  ListenerCore(const ListenerCore&) = delete;
  ListenerCore& operator=(const ListenerCore&) = delete;

  void listen(int backlog);
  // Listens with the default backlog if listen() was not called before.
  void ensure_listening();
  void adopt(int connection);
  // The next request that may become a stream; the others are rejected on the way. Never waits.
  [[nodiscard]] std::optional<Request> take();
  // Accepts the requests that have come, and returns a stream that is connected. Never waits.
  // Throws Error where this side is the reason that a stream cannot be accepted.
  [[nodiscard]] std::optional<Stream> accept(std::span<const std::byte> private_data);
  // What to wait for until the next accept().
  [[nodiscard]] verbs::detail::Descriptors accept_descriptors() {
    return accepting().descriptors(fd());
  }
  void attach(std::shared_ptr<EventQueueCore> queue, std::uint64_t cookie);
  void on_io() noexcept override;
  // After a request was taken from the attached queue while it had all that it may have.
  void go_on() noexcept;

  [[nodiscard]] const verbs::Id& id() const { return id_; }
  [[nodiscard]] int fd() const { return events_.fd(); }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  [[nodiscard]] AcceptQueue& accepting();
  [[nodiscard]] std::optional<Reason> reason_to_refuse(const StreamGreeting& greeting) const;
  void refuse(const verbs::Id& id, Reason reason);
  void watch();  // with the lock, while a queue is attached

  Options options_;  // not changed after the constructor
  verbs::EventChannel events_;
  verbs::Id id_;
  std::atomic<std::uint64_t> refused_{0};
  std::mutex mutex_;  // guards what follows
  bool listening_ = false;
  std::shared_ptr<EventQueueCore> queue_;
  std::uint64_t cookie_ = 0;
  std::shared_ptr<UntakenRequests> untaken_;  // of this listener, in the queue
  bool watching_ = false;                     // for requests, to move them to the queue
  std::unique_ptr<AcceptQueue> accepting_;    // made by the first call that accepts
  Observed observed_;                         // while a queue is attached
  ThreadRegistration registration_;           // while a queue is attached; destroyed before events_
  ForkHandler fork_handler_{this, [](void* self) noexcept {
                              std::construct_at(&static_cast<ListenerCore*>(self)->mutex_);
                            }};
};

}  // namespace weft::stream::detail
