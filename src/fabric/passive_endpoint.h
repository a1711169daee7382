// The passive endpoint of fi_endpoint(3): listens for connection requests.
#pragma once

#include <rdma/fi_cm.h>

#include <memory>
#include <mutex>
#include <optional>

#include "fabric/address.h"
#include "fabric/event_queue.h"
#include "fabric/fabric.h"
#include "fabric/info.h"

namespace weft::fabric {

// Thread-safe. Calls return 0 or a negative error number, and may throw.
class PassiveEndpoint final : public fid_pep, public EventSource {
 public:
  using Handle = fid_pep;
  PassiveEndpoint(Fabric& fabric, const fi_info& info, void* context);  // throws Error
  ~PassiveEndpoint() override;

  [[nodiscard]] int bind(EventQueue& queue);
  [[nodiscard]] int set_address(const SocketAddress& address);
  [[nodiscard]] std::optional<SocketAddress> address();
  [[nodiscard]] int set_backlog(int backlog);
  [[nodiscard]] int listen();
  [[nodiscard]] int reject(fid_t request, std::span<const std::byte> data);

  std::optional<Notice> notice_of(stream::Event event) override;

 private:
  Fabric& fabric_;
  const Use use_;
  const Info info_;
  const stream::Options options_;
  std::mutex mutex_;
  EventQueue* queue_ = nullptr;
  std::optional<Use> queue_use_;
  std::uint64_t cookie_ = 0;
  std::optional<stream::Listener> listener_;  // exists once there is an address
  bool listening_ = false;
  int backlog_ = 0;  // 0: the device's default
};

int open_passive_endpoint(fid_fabric* fabric, fi_info* info, fid_pep** endpoint, void* context);

}  // namespace weft::fabric
