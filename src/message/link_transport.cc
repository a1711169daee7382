#include "message/link_transport.h"

#include <algorithm>

#include "weft/error.hpp"

namespace weft::message::detail {

void LinkTransport::disconnect() const noexcept {
  if (!id_) return;
  try {
    id_->disconnect();
  } catch (const Error&) {
    // The peer has disconnected first.
  }
}

// One completion queue for sends and receives, large enough that it cannot overflow.
void LinkTransport::create(std::shared_ptr<Device> device, const Sizes& sizes, void* context) {
  device_ = std::move(device);
  const auto most = static_cast<std::uint32_t>(device_->context.query().max_sge);
  const std::uint32_t slices = std::min(sizes.slices, most);
  max_slices_ = slices;
  queue_.emplace(device_->context.create_completion_queue(
      static_cast<int>(sizes.sends + sizes.reads + sizes.receives),
      {.channel = &device_->channel, .user_context = context}));
  queue_pair_.emplace(id_->create_queue_pair(device_->domain, *queue_, *queue_,
                                             {.max_send_wr = sizes.sends + sizes.reads,
                                              .max_recv_wr = sizes.receives,
                                              .max_send_sge = slices,
                                              .max_recv_sge = 1,
                                              .max_inline_data = 0}));
}

bool LinkTransport::arm() {
  // Armed queues stay armed until their event; arming again would cost a call for nothing.
  if (armed_) return false;
  queue_->arm();
  armed_ = true;
  return true;
}

void LinkTransport::reset() {
  queue_pair_.reset();  // first: it may still use memory and completion queue
  queue_.reset();
  id_.reset();
}

}  // namespace weft::message::detail
