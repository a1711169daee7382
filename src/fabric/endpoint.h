// The active endpoint of fi_endpoint(3): one end of a stream. Its calls never block.
#pragma once

#include <rdma/fi_cm.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <span>

#include "fabric/address.h"
#include "fabric/event_queue.h"
#include "fabric/fabric.h"
#include "fabric/info.h"
#include "fabric/wait_set.h"

namespace weft::fabric {

// Thread-safe. Calls return 0 or a negative error number, and may throw.
class Endpoint final : public fid_ep, public EventSource {
 public:
  using Handle = fid_ep;
  // With a `request` it is the passive side of a connection, which accept() completes. Throws
  // Error.
  Endpoint(Domain& domain, const fi_info& info, std::optional<stream::Request> request,
           void* context);
  ~Endpoint() override;

  // --- Setting up
  [[nodiscard]] int bind(EventQueue& queue);
  [[nodiscard]] int set_option(int level, int name, const void* value, std::size_t bytes);
  [[nodiscard]] int get_option(int level, int name, void* value, std::size_t* bytes);
  [[nodiscard]] int set_address(const SocketAddress& address);
  [[nodiscard]] int enable();

  // --- Connecting
  [[nodiscard]] int connect(const void* address, std::span<const std::byte> data);
  [[nodiscard]] int accept(std::span<const std::byte> data);
  [[nodiscard]] int shut_down();
  [[nodiscard]] std::optional<SocketAddress> address();
  [[nodiscard]] std::optional<SocketAddress> peer_address();

  // --- Bytes
  // Null until enable(), or on the passive side until accept().
  [[nodiscard]] stream::Stream* stream() const { return live_.load(std::memory_order_acquire); }
  // Readable as Stream::fd() is; valid before there is a stream.
  [[nodiscard]] int fd();

  std::optional<Notice> notice_of(stream::Event event) override;
  // The return value of fi_recv(3). At the end it is 0 once, and then -FI_ESHUTDOWN.
  [[nodiscard]] ssize_t received(const stream::Transfer& outcome);

 private:
  [[nodiscard]] int enable_locked();
  void start(stream::Stream stream);

  const Use use_;
  const Info info_;
  std::mutex mutex_;
  EventQueue* queue_ = nullptr;
  std::optional<Use> queue_use_;
  std::uint64_t cookie_ = 0;
  stream::Options options_;
  const bool passive_;
  std::optional<stream::Request> request_;  // until it is accepted
  std::optional<SocketAddress> local_;      // the source address to bind to
  bool enabled_ = false;
  std::optional<WaitSet> wait_set_;  // if fd() was called before there was a stream
  std::optional<stream::Stream> stream_;
  std::atomic<bool> end_returned_{false};
  std::atomic<stream::Stream*> live_{nullptr};  // `stream_`, for calls without the lock
};

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);

extern fi_ops_msg message_ops;  // fi_msg(3)

}  // namespace weft::fabric
