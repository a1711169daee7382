// fi_eq(3): what happens to endpoints, one after the other.
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

// An event as programs will see it.
struct Notice {
  std::uint64_t cookie = 0;  // whose
  bool is_error = false;
  std::uint32_t event = 0;
  fid_t handle = nullptr;
  Info info{};                    // given away with FI_CONNREQ
  std::vector<std::byte> data{};  // of the peer's, or what fi_eq_write was given
  int error = 0;
  bool is_written = false;  // by fi_eq_write
};

// An endpoint, passive or not, whose events go to a queue.
class Source {
 public:
  virtual ~Source() = default;
  // What an event of the stream's or the listener's means; nothing where it means nothing. Is
  // called with the queue's lock.
  virtual std::optional<Notice> notice_of(stream::Event event) = 0;
};

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

  // The number under which the events of `source` come; it must live until it is removed.
  [[nodiscard]] std::uint64_t add(Source& source);
  void remove(std::uint64_t cookie);
  [[nodiscard]] stream::EventQueue& events() { return events_; }

  [[nodiscard]] int fd() const { return wait_set_.fd(); }
  [[nodiscard]] fi_wait_obj wait_object() const { return wait_object_; }
  [[nodiscard]] Users& users() { return users_; }

 private:
  // With the lock. The next one, which stays; null where there is none.
  Notice* next();
  void drop_next();

  const Use fabric_;
  const fi_wait_obj wait_object_;
  const bool may_write_;
  Users users_;
  std::mutex mutex_;
  stream::EventQueue events_;
  std::deque<Notice> notices_;          // taken from `events_`, or written
  stream::detail::EventFd has_notice_;  // up while there are any
  WaitSet wait_set_;
  std::map<std::uint64_t, Source*> sources_;
  std::uint64_t last_cookie_ = 0;
  std::vector<std::byte> error_data_;  // of the last error; until the next reading call
};

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** queue, void* context);

}  // namespace weft::fabric
