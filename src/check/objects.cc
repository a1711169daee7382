#include "check/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::check {
namespace {

// Older ones are forgotten, where the device has not freed their memory before: see forget().
constexpr std::size_t max_destroyed = 16384;

std::uintptr_t address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::context:
      return "context";
    case Kind::domain:
      return "protection domain";
    case Kind::thread_domain:
      return "thread domain";
    case Kind::region:
      return "memory region";
    case Kind::window:
      return "memory window";
    case Kind::channel:
      return "completion channel";
    case Kind::completion_queue:
      return "completion queue";
    case Kind::shared_receive_queue:
      return "shared receive queue";
    case Kind::queue_pair:
      return "queue pair";
    case Kind::address_handle:
      return "address handle";
    case Kind::event_channel:
      return "event channel";
    case Kind::id:
      return "rdma_cm id";
  }
  return "object";
}

std::string to_string(const Object& object) {
  const bool seen =
      object.kind == Kind::queue_pair || object.kind == Kind::region || object.kind == Kind::window;
  const std::string_view key = object.kind == Kind::queue_pair ? "" : "with key ";
  return seen ? fmt::format("{} {}{:#x}", name_of(object.kind), key, object.number)
              : fmt::format("{} {}", name_of(object.kind), object.number);
}

void Objects::add(Object object) {
  const std::uint64_t count = ++counts_[object.kind];
  if (object.number == 0) object.number = count;
  object.addition = ++additions_;
  destroyed_.erase(address_of(object.handle));
  live_.insert_or_assign(object.handle, std::move(object));
}

const Object* Objects::find(const void* handle) const {
  const auto found = live_.find(handle);
  return found == live_.end() ? nullptr : &found->second;
}

const Object* Objects::find_destroyed(const void* handle) const {
  const auto found = destroyed_.find(address_of(handle));
  return found == destroyed_.end() ? nullptr : &found->second;
}

void Objects::destroy(const void* handle, StackId stack, const std::string& destroyer,
                      std::uint64_t additions) {
  const auto found = live_.find(handle);
  if (found == live_.end() || found->second.addition > additions) return;
  auto node = live_.extract(found);
  node.mapped().destroyed = stack;
  node.mapped().destroyer = destroyer;
  destroyed_.insert_or_assign(address_of(handle), std::move(node.mapped()));
  order_.push_back(handle);
  if (order_.size() <= max_destroyed) return;
  destroyed_.erase(address_of(order_.front()));
  order_.pop_front();
}

void Objects::forget(const void* memory, std::size_t bytes) {
  const std::uintptr_t first = address_of(memory);
  destroyed_.erase(destroyed_.lower_bound(first), destroyed_.lower_bound(first + bytes));
}

void Objects::set_used(const void* handle, const void* used) {
  const auto found = live_.find(handle);
  if (found == live_.end()) return;
  found->second.uses.clear();
  if (used) found->second.uses.push_back(used);
}

void Objects::inherit() {
  for (auto& [handle, object] : live_) object.inherited = true;
}

std::vector<Object> Objects::users_of(const void* handle) const {
  std::vector<Object> users;
  for (const auto& [key, object] : live_) {
    if (std::find(object.uses.begin(), object.uses.end(), handle) != object.uses.end()) {
      users.push_back(object);
    }
  }
  return users;
}

std::vector<Object> Objects::live() const {
  std::vector<Object> all;
  for (const auto& [key, object] : live_) all.push_back(object);
  return all;
}

}  // namespace weft::check
