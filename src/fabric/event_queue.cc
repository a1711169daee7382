#include "fabric/event_queue.h"

#include <poll.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/fabric.h"
#include "fabric/table_functions.h"
#include "stream/stream_thread.h"

namespace weft::fabric {
namespace {

constexpr std::uint64_t known_read_flags = FI_PEEK;

// Copies an event to the program. A peeked FI_CONNREQ keeps its fi_info, which the program must not
// free then.
ssize_t give(Notice& notice, std::span<std::byte> into, bool peek) {
  // The format of a written event is the program's, so it is returned whole or not at all.
  if (notice.is_written) {
    if (into.size() < notice.data.size()) return -FI_ETOOSMALL;
    std::ranges::copy(notice.data, into.begin());
    return static_cast<ssize_t>(notice.data.size());
  }
  fi_eq_cm_entry entry{};
  if (into.size() < sizeof entry) return -FI_ETOOSMALL;
  entry.fid = notice.handle;
  entry.info = peek ? notice.info.get() : notice.info.release();
  std::memcpy(into.data(), &entry, sizeof entry);
  // fi_eq(3): the private data follow the entry, as far as there is room.
  const auto room = into.subspan(sizeof entry);
  const std::size_t fits = std::min(room.size(), notice.data.size());
  std::copy_n(notice.data.begin(), fits, room.begin());
  return static_cast<ssize_t>(sizeof entry + fits);
}

}  // namespace

// Events are translated only when the program reads, so that an event of a closed endpoint is
// dropped.
Notice* EventQueue::next() {
  while (notices_.empty()) {
    auto event = events_.next(Deadline::now());
    if (!event) return nullptr;
    const auto source = sources_.find(event->cookie);
    if (source == sources_.end()) continue;  // the endpoint was closed meanwhile
    auto notice = source->second->notice_of(std::move(*event));
    if (!notice) continue;
    notice->cookie = source->first;
    notices_.push_back(std::move(*notice));
  }
  has_notice_.set(true);
  return &notices_.front();
}

void EventQueue::drop_next() {
  notices_.pop_front();
  has_notice_.set(!notices_.empty());
}

// fi_eq(3): -FI_EAVAIL if the next entry is an error, which only read_error() returns.
ssize_t EventQueue::read(std::uint32_t* event, std::span<std::byte> into, bool peek) {
  const std::lock_guard lock(mutex_);
  Notice* const notice = next();
  if (!notice) return -FI_EAGAIN;
  if (notice->is_error) return -FI_EAVAIL;
  const ssize_t bytes = give(*notice, into, peek);
  if (bytes < 0) return bytes;
  *event = notice->event;
  if (!peek) drop_next();
  return bytes;
}

// Waits by the stream layer, which handles arriving data in this thread meanwhile.
ssize_t EventQueue::await(std::uint32_t* event, std::span<std::byte> into, bool peek,
                          int timeout_ms) {
  const Deadline deadline =
      timeout_ms < 0 ? Deadline::never() : Deadline(std::chrono::milliseconds(timeout_ms));
  while (true) {
    const ssize_t bytes = read(event, into, peek);
    if (bytes != -FI_EAGAIN) return bytes;
    pollfd entry{fd(), POLLIN, 0};
    const int ready = stream::detail::wait({&entry, 1}, deadline.poll_timeout_ms());
    if (ready < 0) return -errno;  // also EINTR: fi_eq(3)
    // The wait counts milliseconds and may end a little early, so the time is checked as well.
    if (ready == 0 && deadline.passed()) return -FI_EAGAIN;
  }
}

ssize_t EventQueue::read_error(fi_eq_err_entry& into, bool peek) {
  const std::lock_guard lock(mutex_);
  Notice* const notice = next();
  if (!notice || !notice->is_error) return -FI_EAGAIN;
  void* const buffer = into.err_data;
  const std::size_t room = into.err_data_size;
  into = {};
  into.fid = notice->handle;
  into.context = notice->handle->context;
  into.err = notice->error;
  into.prov_errno = notice->error;
  // A copy, because the program may read the data after the notice is dropped.
  error_data_ = notice->data;
  // fi_eq(3): without a buffer of its own, the program reads the provider's.
  if (room == 0 || !buffer) {
    into.err_data = error_data_.empty() ? nullptr : error_data_.data();
    into.err_data_size = error_data_.size();
  } else {
    into.err_data = buffer;
    into.err_data_size = std::min(room, error_data_.size());
    if (into.err_data_size > 0) std::memcpy(buffer, error_data_.data(), into.err_data_size);
  }
  if (!peek) drop_next();
  return sizeof into;
}

// fi_eq(3): the queue must have been opened with FI_WRITE.
ssize_t EventQueue::write(std::uint32_t event, std::span<const std::byte> from) {
  if (!may_write_) return -FI_ENOSYS;
  Notice notice;
  notice.event = event;
  notice.is_written = true;
  notice.data.assign(from.begin(), from.end());
  const std::lock_guard lock(mutex_);
  notices_.push_back(std::move(notice));
  has_notice_.set(true);
  return static_cast<ssize_t>(from.size());
}

// A number is not used again, so that an old event never finds a newer source.
std::uint64_t EventQueue::add(EventSource& source) {
  const std::lock_guard lock(mutex_);
  sources_.emplace(++last_cookie_, &source);
  return last_cookie_;
}

// Also drops the notices of the source: they hold its handle.
void EventQueue::remove(std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  sources_.erase(cookie);
  std::erase_if(notices_, [cookie](const Notice& notice) { return notice.cookie == cookie; });
  has_notice_.set(!notices_.empty());
}

// --- What programs call --------------------------------------------------------------------------

namespace {

EventQueue& of(fid_eq* queue) {
  return static_cast<EventQueue&>(*queue);
}

std::span<std::byte> bytes_at(void* buffer, std::size_t length) {
  return {static_cast<std::byte*>(buffer), length};
}

ssize_t read(fid_eq* queue, std::uint32_t* event, void* buffer, std::size_t length,
             std::uint64_t flags) {
  if (!event || !buffer || (flags & ~known_read_flags) != 0) return -FI_EINVAL;
  return of(queue).read(event, bytes_at(buffer, length), (flags & FI_PEEK) != 0);
}

ssize_t read_synchronously(fid_eq* queue, std::uint32_t* event, void* buffer, std::size_t length,
                           int timeout, std::uint64_t flags) {
  // The program has asked for a queue that cannot be waited on.
  if (of(queue).wait_object() == FI_WAIT_NONE) return -FI_ENOSYS;
  if (!event || !buffer || (flags & ~known_read_flags) != 0) return -FI_EINVAL;
  return of(queue).await(event, bytes_at(buffer, length), (flags & FI_PEEK) != 0, timeout);
}

ssize_t read_error(fid_eq* queue, fi_eq_err_entry* entry, std::uint64_t flags) {
  if (!entry || (flags & ~known_read_flags) != 0) return -FI_EINVAL;
  return of(queue).read_error(*entry, (flags & FI_PEEK) != 0);
}

ssize_t write(fid_eq* queue, std::uint32_t event, const void* buffer, std::size_t length,
              std::uint64_t flags) {
  if (flags != 0 || (!buffer && length > 0)) return -FI_EINVAL;
  return of(queue).write(event, {static_cast<const std::byte*>(buffer), length});
}

// read_error() returns the same error number as prov_errno, so libfabric's text describes it.
const char* describe(fid_eq* /*queue*/, int error, const void* /*data*/, char* text,
                     std::size_t room) {
  const char* const known = fi_strerror(error);
  if (!text || room == 0) return known;
  const std::size_t length = std::min(std::strlen(known), room - 1);
  std::memcpy(text, known, length);
  text[length] = '\0';
  return text;
}

// fi_close of an event queue fails while endpoints are bound to it.
int close_queue(fid* handle) {
  auto& queue = object_of<EventQueue>(handle);
  if (queue.users().any()) return -FI_EBUSY;
  delete &queue;
  return 0;
}

int control(fid* handle, int command, void* argument) {
  const auto& queue = object_of<EventQueue>(handle);
  if (queue.wait_object() == FI_WAIT_NONE && command == FI_GETWAIT) return -FI_ENOSYS;
  if (command != FI_GETWAIT && command != FI_GETWAITOBJ) return -FI_ENOSYS;
  if (!argument) return -FI_EINVAL;
  if (command == FI_GETWAIT) {
    *static_cast<int*>(argument) = queue.fd();
  } else {
    *static_cast<fi_wait_obj*>(argument) = queue.wait_object();
  }
  return 0;
}

fi_ops queue_fid_ops = {
    .size = sizeof(fi_ops),
    .close = guarded<close_queue>,
    .bind = unsupported<decltype(fi_ops::bind)>,
    .control = guarded<control>,
    .ops_open = unsupported<decltype(fi_ops::ops_open)>,
    .tostr = unsupported<decltype(fi_ops::tostr)>,
    .ops_set = unsupported<decltype(fi_ops::ops_set)>,
};

fi_ops_eq queue_ops = {
    .size = sizeof(fi_ops_eq),
    .read = guarded<read>,
    .readerr = guarded<read_error>,
    .write = guarded<write>,
    .sread = guarded<read_synchronously>,
    .strerror = describe,
};

}  // namespace

// The descriptor is readable for events of the streams that are not translated yet, and for notices
// that wait. FI_WAIT_UNSPEC leaves the choice to the provider.
EventQueue::EventQueue(Fabric& fabric, const fi_eq_attr& wanted, void* context)
    : fid_eq{{FI_CLASS_EQ, context, &queue_fid_ops}, &queue_ops},
      fabric_(fabric.users()),
      wait_object_(wanted.wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : wanted.wait_obj),
      may_write_((wanted.flags & FI_WRITE) != 0) {
  wait_set_.add(events_.fd());
  wait_set_.add(has_notice_.fd());
}

// FI_WAIT_SET and the like are not supported; FI_AFFINITY is ignored.
int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** queue, void* context) {
  if (!queue) return -FI_EINVAL;
  const fi_eq_attr wanted = attributes ? *attributes : fi_eq_attr{};
  constexpr std::uint64_t known_flags = FI_WRITE | FI_AFFINITY;
  if ((wanted.flags & ~known_flags) != 0) return -FI_EINVAL;
  if (wanted.wait_obj != FI_WAIT_NONE && wanted.wait_obj != FI_WAIT_UNSPEC &&
      wanted.wait_obj != FI_WAIT_FD) {
    return -FI_ENOSYS;
  }
  *queue = new EventQueue(static_cast<Fabric&>(*fabric), wanted, context);
  return 0;
}

}  // namespace weft::fabric
