#include "device/memory/context_sharing.h"

#include "device/context.h"

namespace weft::device {

void ContextSharing::add(ProtectionDomain& domain) {
  domain.listed = file_.show_domain(domain.pd.handle);
  const std::lock_guard lock(mutex_);
  domains_.insert_or_assign(domain.pd.handle, &domain);
}

// Parent domains have the handle of the domain that they were made from.
void ContextSharing::remove(ProtectionDomain& domain) {
  file_.withdraw(domain.listed);
  const std::lock_guard lock(mutex_);
  const auto found = domains_.find(domain.pd.handle);
  if (found != domains_.end() && found->second == &domain) domains_.erase(found);
}

ProtectionDomain* ContextSharing::find(std::uint32_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = domains_.find(handle);
  return found == domains_.end() ? nullptr : found->second;
}

void ContextSharing::add(DeviceMemory& memory) {
  const std::lock_guard lock(mutex_);
  memory.verbs()->handle = ++last_memory_;
  memory_.emplace(memory.verbs()->handle, &memory);
}

void ContextSharing::remove(DeviceMemory& memory) {
  const std::lock_guard lock(mutex_);
  memory_.erase(memory.verbs()->handle);
}

DeviceMemory* ContextSharing::find_memory(std::uint32_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(handle);
  return found == memory_.end() ? nullptr : found->second;
}

std::uint32_t ContextSharing::number_for(std::uint32_t foreign_handle, std::uint32_t fresh) {
  const std::lock_guard lock(mutex_);
  return foreign_numbers_.emplace(foreign_handle, fresh).first->second;
}

}  // namespace weft::device
