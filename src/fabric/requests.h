// Connection requests that were reported to the program and are neither accepted nor rejected yet.
#pragma once

#include <rdma/fabric.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "weft/stream.hpp"

namespace weft::fabric {

// Thread-safe. The key of a request is the handle in its fi_info.
class Requests {
 public:
  // `listener`: the passive endpoint that received the request.
  [[nodiscard]] fid_t add(const void* listener, stream::Request request);
  // Removes the request. Nothing if the handle is unknown or was taken before: it is only compared,
  // never dereferenced.
  [[nodiscard]] std::optional<stream::Request> take(fid_t handle);
  // Rejects all requests of a listener.
  void drop_of(const void* listener);

 private:
  struct Entry {
    std::unique_ptr<fid> handle;
    const void* listener;
    stream::Request request;
  };
  std::mutex mutex_;
  std::map<fid_t, Entry> entries_;
};

}  // namespace weft::fabric
