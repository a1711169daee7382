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
  // One more for a probe.
  const std::uint32_t requests = sizes.sends + sizes.reads + 1;
  queue_.emplace(device_->context.create_completion_queue(
      static_cast<int>(requests + sizes.receives),
      {.channel = &device_->channel, .user_context = context}));
  queue_pair_.emplace(id_->create_queue_pair(device_->domain, *queue_, *queue_,
                                             {.max_send_wr = requests,
                                              .max_recv_wr = sizes.receives,
                                              .max_send_sge = slices,
                                              .max_recv_sge = 1,
                                              .max_inline_data = 0}));
}

std::span<verbs::Completion> LinkTransport::poll(std::span<verbs::Completion> into,
                                                 ReceivePlace& place) const {
  if (!device_->poll_into) return queue_->poll(into);
  const int got = device_->poll_into(queue_->raw(), static_cast<int>(into.size()),
                                     reinterpret_cast<ibv_wc*>(into.data()), &place);
  return into.first(got < 0 ? 0 : static_cast<std::size_t>(got));
}

bool LinkTransport::arm() {
  // Armed queues stay armed until their event; arming again would cost a call for nothing.
  if (armed_) return false;
  queue_->arm();
  armed_ = true;
  return true;
}

// Neither address nor rkey of a write of zero bytes is checked (RFC 5041 §6.1), but some adapters
// refuse the rkey 0.
int LinkTransport::post_probe() {
  return queue_pair_->post_write(std::span<const verbs::LocalSlice>(), verbs::RemoteSlice(0, 0, 1),
                                 work_id(Work::probe, 0));
}

std::uint64_t LinkTransport::accessed_bytes() const {
  if (device_->context.backend() != verbs::Backend::embedded) return 0;
  const auto counters = queue_pair_->counters();
  return counters.peer_reads.bytes + counters.peer_writes.bytes;
}

// Behind disconnect(), so that nothing completes any more but requests that are flushed. What has
// completed since the last look concerns a connection that has ended.
void LinkTransport::reset() {
  if (queue_) queue_->for_each([](const verbs::Completion& /*late*/) {});
  queue_pair_.reset();  // first: it may still use memory and completion queue
  queue_.reset();
  id_.reset();
}

}  // namespace weft::message::detail
