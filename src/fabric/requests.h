// Requests to connect that programs know of and have neither accepted nor rejected.
#pragma once

#include <rdma/fabric.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "weft/stream.hpp"

namespace weft::fabric {

// By the handles that stand in their fi_info.
class Requests {
 public:
  // `listener` is whose request it is.
  [[nodiscard]] fid_t add(const void* listener, stream::Request request);
  // Nothing for handles that are none, or were taken before.
  [[nodiscard]] std::optional<stream::Request> take(fid_t handle);
  // Rejects what a listener has left.
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
