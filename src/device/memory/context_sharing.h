// The part of a context that ibv_import_device(3), ibv_import_pd(3) and ibv_import_mr(3) need.
//
// Within a process, importing a context gives the same context once more, and its objects by their
// handles. In another process it gives a new context, which makes objects of its own that stand for
// those of the first one: see context_file.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "device/memory/context_file.h"

namespace weft::device {

class DeviceMemory;
struct ProtectionDomain;

// Thread-safe, apart from begin_file() and import_from(), which belong to the context's creation.
class ContextSharing {
 public:
  // Makes the file by which others import the context. Before its first object.
  void begin_file() { file_.create(); }
  [[nodiscard]] ContextFile& file() { return file_; }
  // The context stands for one of another process.
  void import_from(ForeignContext foreign) { foreign_ = std::move(foreign); }
  // Null if it does not.
  [[nodiscard]] const ForeignContext* foreign() const { return foreign_ ? &*foreign_ : nullptr; }

  // The program has the context once more.
  void open_again() { ++openings_; }
  // False where the program has the context still.
  [[nodiscard]] bool close() { return --openings_ == 0; }

  // The domains of this context by their handles, without parent domains.
  void add(ProtectionDomain& domain);
  void remove(ProtectionDomain& domain);
  [[nodiscard]] ProtectionDomain* find(std::uint32_t handle);
  // Device memory of this context. The first function gives it its handle.
  void add(DeviceMemory& memory);
  void remove(DeviceMemory& memory);
  [[nodiscard]] DeviceMemory* find_memory(std::uint32_t handle);
  // The number of the domain that stands for this one of the other process: `fresh` at first.
  [[nodiscard]] std::uint32_t number_for(std::uint32_t foreign_handle, std::uint32_t fresh);

 private:
  ContextFile file_;
  std::optional<ForeignContext> foreign_;
  std::atomic<int> openings_{1};
  std::mutex mutex_;
  std::map<std::uint32_t, ProtectionDomain*> domains_;
  std::map<std::uint32_t, DeviceMemory*> memory_;
  std::uint32_t last_memory_ = 0;
  std::map<std::uint32_t, std::uint32_t> foreign_numbers_;  // by the handle there
};

}  // namespace weft::device
