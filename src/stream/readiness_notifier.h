// Reports the state of a stream to those that wait for it outside of a call: the pollable
// descriptor, the watchers of layers above, and an event queue.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stream/event_fd.h"
#include "stream/event_queue_core.h"
#include "stream/observed.h"
#include "weft/stream/stream.hpp"

namespace weft::stream::detail {

// Not thread-safe: the stream's lock covers it. Watchers are called with that lock held, and must
// not call the stream.
class ReadinessNotifier {
 public:
  // False while nothing observes the stream; then it needs no progress in the background.
  [[nodiscard]] bool has_observers() const {
    return descriptor_ || send_descriptor_ || !watchers_.empty() || event_queue_;
  }
  [[nodiscard]] bool needs_every_arrival() const;
  // Whether all of them look for bytes themselves.
  [[nodiscard]] bool watchers_look() const;
  [[nodiscard]] bool has_only_watchers() const {
    return !descriptor_ && !send_descriptor_ && !event_queue_ && !watchers_.empty();
  }
  [[nodiscard]] bool has_descriptor() const { return descriptor_ != nullptr; }
  [[nodiscard]] bool has_send_descriptor() const { return send_descriptor_ != nullptr; }
  [[nodiscard]] bool has_event_queue() const { return event_queue_ != nullptr; }

  // Each creates its descriptor at the first call. Throw Error.
  [[nodiscard]] int fd();
  [[nodiscard]] int send_fd();
  void add(Stream::Watcher* watcher);
  void remove(Stream::Watcher* watcher);
  // Null detaches the queue.
  void attach(std::shared_ptr<EventQueueCore> queue, std::uint64_t cookie);

  void set_descriptor_readable(bool readable) { descriptor_->set(readable); }
  void set_send_descriptor_readable(bool readable) { send_descriptor_->set(readable); }
  // Calls the watchers if this differs from what was reported last.
  void report(const Stream::Readiness& now);
  // Calls them in any case, with what was reported last.
  void report_again();
  [[nodiscard]] const Stream::Readiness& reported() const { return reported_; }
  // Each posts its event once in the life of the stream; later calls do nothing. Error numbers are
  // 0 for success: connected, and a shutdown by the peer's own will.
  void report_connected(int error_number);
  void report_shutdown(int error_number);

 private:
  std::unique_ptr<EventFd> descriptor_;
  std::unique_ptr<EventFd> send_descriptor_;
  std::vector<Stream::Watcher*> watchers_;
  Stream::Readiness reported_;
  std::shared_ptr<EventQueueCore> event_queue_;
  std::uint64_t cookie_ = 0;
  bool connected_reported_ = false;
  bool shutdown_reported_ = false;
  Observed observed_;  // as has_observers()
};

}  // namespace weft::stream::detail
