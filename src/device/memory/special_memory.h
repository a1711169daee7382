// Regions outside the application's memory: device memory, ibv_alloc_dm(3), and the null region,
// ibv_alloc_null_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace weft::device {

// Device memory, which this device keeps in the process. Programs access it by copy functions, and
// by regions with addresses from zero.
class DeviceMemory {
 public:
  DeviceMemory(ibv_context* context, std::size_t length_bytes, std::size_t alignment_bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] ibv_dm* verbs() { return &dm_; }
  [[nodiscard]] static DeviceMemory* of(ibv_dm* dm) { return reinterpret_cast<DeviceMemory*>(dm); }
  [[nodiscard]] std::byte* at(std::uint64_t offset) { return bytes_ + offset; }
  [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t length_bytes) const {
    return offset <= length_bytes_ && length_bytes <= length_bytes_ - offset;
  }

  [[nodiscard]] std::atomic<int>& users() { return users_; }  // regions that refer to it

 private:
  ibv_dm dm_{};  // first: see of()
  std::atomic<int> users_{0};
  std::size_t length_bytes_;
  std::byte* bytes_;
};

// The memory behind null regions: zeros to read and a sink to write to. Reserves address space for
// the longest possible slice, with almost no memory behind it. Created on first use.
class NullMemory {
 public:
  NullMemory() = default;
  ~NullMemory();
  NullMemory(const NullMemory&) = delete;
  NullMemory& operator=(const NullMemory&) = delete;

  // Creates both mappings; 0 or ENOMEM.
  int prepare();
  [[nodiscard]] std::byte* zeros() const { return zeros_; }
  [[nodiscard]] std::byte* sink() const { return sink_; }

 private:
  std::mutex mutex_;
  std::byte* zeros_ = nullptr;
  std::byte* sink_ = nullptr;
};

// The operations of a context. They return null with errno set, or an errno.
ibv_dm* allocate_device_memory(ibv_context* context, ibv_alloc_dm_attr* attributes);
int free_device_memory(ibv_dm* dm);
ibv_mr* register_device_memory(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset,
                               std::size_t length_bytes, unsigned access);
ibv_mr* allocate_null_region(ibv_pd* pd);

}  // namespace weft::device
