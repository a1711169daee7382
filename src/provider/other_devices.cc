#include "provider/other_devices.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "provider/process.h"

namespace weft::provider {

device::Context* OtherDevices::open(const device::Settings& settings, std::string& why) {
  auto made = device::Device::create(settings);
  if (!made) {
    why = made.error();
    errno = ENODEV;
    return nullptr;
  }
  Entry entry;
  entry.device = std::move(*made);
  if (!entry.device->settings().stats_path.empty()) {
    auto opened = Statistics::open(*entry.device);
    if (!opened) {
      why = opened.error();
      errno = EINVAL;
      return nullptr;
    }
    entry.statistics = *opened;
  }
  auto context = make_context(*entry.device);
  const std::lock_guard lock(mutex_);
  ibv_device& handle = *entry.device->verbs();
  std::snprintf(handle.name, sizeof handle.name, "weft%d", ++last_number_);
  entry.live_server = LiveServer::open(*entry.device);
  entries_.push_back(std::move(entry));
  count_ = entries_.size();
  return context.release();
}

bool OtherDevices::has(const device::Device& device) {
  if (count_ == 0) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_,
                             [&](const Entry& entry) { return entry.device.get() == &device; });
}

cm::Manager* OtherDevices::manager(device::Context& context) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.device.get() == &context.device(); });
  if (found == entries_.end()) return nullptr;
  if (!found->manager) {
    found->manager = std::make_unique<cm::Manager>([opened = &context] { return opened; });
  }
  return found->manager.get();
}

// Destroyed without the lock, because it calls back.
bool OtherDevices::close_manager(device::Device& device) {
  std::unique_ptr<cm::Manager> closed;
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.device.get() != &device || !entry.manager) continue;
    if (entry.manager->has_objects()) return false;
    closed = std::move(entry.manager);
  }
  return true;
}

// Destroyed without the lock, because its thread ends there.
void OtherDevices::close(device::Device& device) {
  Entry closed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.device.get() == &device; });
    if (found == entries_.end()) return;
    closed = std::move(*found);
    entries_.erase(found);
    count_ = entries_.size();
  }
  if (closed.statistics) closed.statistics->write("exit");
  closed.statistics.reset();
  if (closed.live_server) closed.live_server->stop();
}

// Without the lock: another thread of the parent may have held it.
void OtherDevices::abandon_after_fork() {
  for (const Entry& entry : entries_) {
    if (entry.statistics) entry.statistics->abandon_after_fork();
    if (entry.live_server) entry.live_server->abandon_after_fork();
    entry.device->abandon_after_fork();
    if (entry.manager) entry.manager->abandon_after_fork();
  }
}

}  // namespace weft::provider
