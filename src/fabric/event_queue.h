// fi_eq(3): the queue that reports connection events of endpoints, in order.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "fabric/info.h"
#include "fabric/users.h"
#include "fabric/wait_set.h"
#include "stream/event_fd.h"
#include "weft/stream.hpp"

namespace weft::fabric {

class Fabric;

// An event in the form that programs read.
struct Notice {
  std::uint64_t cookie = 0;  // of the source
  bool is_error = false;
  std::uint32_t event = 0;
  fid_t handle = nullptr;
  Info info{};                    // of FI_CONNREQ; the program owns it after reading
  std::vector<std::byte> data{};  // private data of the peer, or the data of fi_eq_write
  int error = 0;
  bool is_written = false;  // came from fi_eq_write
};

// An endpoint, passive or active, that reports events to a queue.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Translates an event of the stream or the listener; nothing if programs do not see it. Called
  // with the queue's lock held.
  virtual std::optional<Notice> notice_of(stream::Event event) = 0;
};

// Thread-safe.
class EventQueue final : public fid_eq {
 public:
  using Handle = fid_eq;
  EventQueue(Fabric& fabric, const fi_eq_attr& wanted, void* context);

  // As fi_eq_read, fi_eq_sread, fi_eq_readerr and fi_eq_write.
  [[nodiscard]] ssize_t read(std::uint32_t* event, std::span<std::byte> into, bool peek);
  [[nodiscard]] ssize_t await(std::uint32_t* event, std::span<std::byte> into, bool peek,
                              int timeout_ms);
  [[nodiscard]] ssize_t read_error(fi_eq_err_entry& into, bool peek);
  [[nodiscard]] ssize_t write(std::uint32_t event, std::span<const std::byte> from);

  // Returns the cookie for events of `source`, which must live until remove().
  [[nodiscard]] std::uint64_t add(EventSource& source);
  void remove(std::uint64_t cookie);
  [[nodiscard]] stream::EventQueue& events() { return events_; }

  [[nodiscard]] int fd() const { return wait_set_.fd(); }
  [[nodiscard]] fi_wait_obj wait_object() const { return wait_object_; }
  [[nodiscard]] Users& users() { return users_; }

 private:
  // With mutex_ held. The next notice, which stays in the queue; null if there is none.
  Notice* next();
  void drop_next();

  const Use fabric_;
  const fi_wait_obj wait_object_;
  const bool may_write_;
  Users users_;
  std::mutex mutex_;
  stream::EventQueue events_;
  std::deque<Notice> notices_;          // translated from `events_`, or written
  stream::detail::EventFd has_notice_;  // set while notices_ is not empty
  WaitSet wait_set_;
  std::map<std::uint64_t, EventSource*> sources_;
  std::uint64_t last_cookie_ = 0;
  std::vector<std::byte> error_data_;  // of the last error, valid until the next call that reads
};

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** queue, void* context);

}  // namespace weft::fabric
