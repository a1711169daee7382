// The end of `weft top` in a process with a device: a Unix socket that gives out counters.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/descriptor.h"
#include "base/event_fd.h"
#include "device/device.h"

namespace weft::provider {

// Listens on a name of live/socket_name.h, and answers processes of the same user only. While no
// client is connected it costs one descriptor, and nothing is measured. A thread of its own serves
// the clients, because a report waits for the locks of queue pairs; it ends with the last client.
//
// Thread-safe.
class LiveServer : public device::Pollable, public std::enable_shared_from_this<LiveServer> {
 public:
  // Null where there are no Unix sockets, or no descriptor is left. `device` outlives the server,
  // or its stop().
  [[nodiscard]] static std::shared_ptr<LiveServer> open(device::Device& device);
  ~LiveServer() override;
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  // Ends the connections, and waits until the device is not used any more.
  void stop();
  // In the child after fork(2): closes the parent's sockets. Takes no lock.
  void abandon_after_fork();

  void on_ready(std::uint32_t epoll_events) override;
  void on_deadline() override;

 private:
  static constexpr std::size_t most_clients = 8;
  struct Client {
    Descriptor socket;
    std::uint64_t asked_ns = 0;  // its last request
  };

  LiveServer(device::Device& device, Descriptor listener);
  void watch();
  void unwatch();
  void pause();
  void admit(Descriptor socket);
  void start_thread();
  void run();
  [[nodiscard]] bool ends();
  void serve_ready();
  [[nodiscard]] bool serve(Client& client, bool readable);
  [[nodiscard]] bool send(const Descriptor& socket, std::string_view text) const;
  [[nodiscard]] bool refuse() const;

  device::Device& device_;
  std::mutex mutex_;
  Descriptor listener_;
  std::uint64_t token_ = 0;  // with the engine; 0: not watched
  // Written under mutex_: admit() fills a free place, and only the thread frees one.
  std::array<Client, most_clients> clients_;
  bool running_ = false;
  std::optional<EventFd> wake_;  // of the thread; made for the first client
  std::thread thread_;
  std::atomic<bool> stopping_{false};
};

}  // namespace weft::provider
