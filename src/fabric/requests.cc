#include "fabric/requests.h"

#include <rdma/fi_errno.h>

#include <vector>

#include "fabric/table_functions.h"

namespace weft::fabric {
namespace {

// Programs pass the handle of a request only to fi_endpoint or fi_reject, so all calls on it fail.
fi_ops request_ops = {
    .size = sizeof(fi_ops),
    .close = unsupported<decltype(fi_ops::close)>,
    .bind = unsupported<decltype(fi_ops::bind)>,
    .control = unsupported<decltype(fi_ops::control)>,
    .ops_open = unsupported<decltype(fi_ops::ops_open)>,
    .tostr = unsupported<decltype(fi_ops::tostr)>,
    .ops_set = unsupported<decltype(fi_ops::ops_set)>,
};

}  // namespace

// The address of the handle is the key. It is unique while the entry owns it.
fid_t Requests::add(const void* listener, stream::Request request) {
  auto handle = std::make_unique<fid>(fid{FI_CLASS_CONNREQ, nullptr, &request_ops});
  const fid_t key = handle.get();
  const std::lock_guard lock(mutex_);
  entries_.emplace(key, Entry{std::move(handle), listener, std::move(request)});
  return key;
}

std::optional<stream::Request> Requests::take(fid_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) return std::nullopt;
  std::optional<stream::Request> request(std::move(found->second.request));
  entries_.erase(found);
  return request;
}

// A request that is destroyed rejects itself.
void Requests::drop_of(const void* listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_,
                [listener](const auto& entry) { return entry.second.listener == listener; });
}

}  // namespace weft::fabric
