// A listening socket: rdma_listen(3). Every connection gets a Greeting until it becomes a request.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "cm/greeting.h"
#include "cm/registry.h"
#include "device/engine.h"

namespace weft::cm {

class Listener final : public device::Pollable, public std::enable_shared_from_this<Listener> {
 public:
  // `socket`: listening already. `tos`: for every connection. `backlog`: requests that the
  // application has not fetched yet; more wait in the kernel's queue.
  Listener(std::shared_ptr<Registry> registry, device::Context& context,
           std::weak_ptr<Identifier> owner, device::sys::Descriptor socket, int tos, int backlog);

  int start();
  // Closes the socket and every connection that is not a request yet.
  void stop();
  // The application has fetched a request: there is room for another.
  void request_fetched();
  void abandon_after_fork();

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  [[nodiscard]] std::shared_ptr<Greeting> accept_one();
  [[nodiscard]] bool has_room() const;
  void watch();
  void pause();
  void on_requested(const std::shared_ptr<Greeting>& greeting);
  void on_failed(const std::shared_ptr<Greeting>& greeting);

  std::shared_ptr<Registry> registry_;
  device::Context& context_;
  std::weak_ptr<Identifier> owner_;
  int tos_;
  std::size_t backlog_;

  std::mutex mutex_;
  device::sys::Descriptor socket_;
  std::uint64_t token_ = 0;
  std::unordered_set<std::shared_ptr<Greeting>> greetings_;
  std::size_t requests_ = 0;
};

}  // namespace weft::cm
