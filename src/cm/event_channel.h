// Event channels and the events on them: rdma_create_event_channel(3), rdma_get_cm_event(3).
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "device/event_queue.h"

namespace weft::cm {

class Identifier;

// From push to rdma_ack_cm_event(3).
struct Event {
  rdma_cm_event event{};  // first: see of()
  std::array<std::byte, 256> private_data{};
  // Whose event it is: destroying it waits until this is acknowledged. A connection request belongs
  // to the listener.
  std::shared_ptr<Identifier> owner;
  // The new id of a connection request, until it is delivered.
  std::shared_ptr<Identifier> request;

  [[nodiscard]] static Event* of(rdma_cm_event* event) { return reinterpret_cast<Event*>(event); }
  // At most what fits rdma_conn_param::private_data_len.
  void set_private_data(Bytes bytes);
};

// Shared by the program and the ids on it: one that is destroyed too early only falls silent.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  [[nodiscard]] static std::shared_ptr<Channel> create();
  Channel() { handle_.channel.fd = events_.fd(); }

  [[nodiscard]] rdma_event_channel* handle() { return &handle_.channel; }
  [[nodiscard]] static Channel* of(rdma_event_channel* channel) {
    return reinterpret_cast<Handle*>(channel)->owner;
  }

  void push(std::unique_ptr<Event> event) { events_.push(std::move(event)); }
  // For who holds a token of the descriptor; null where the event was withdrawn. Counts the event
  // as delivered to its owner.
  [[nodiscard]] std::unique_ptr<Event> take();
  // Takes back what is not delivered yet, in order.
  [[nodiscard]] std::vector<std::unique_ptr<Event>> withdraw(const Identifier* owner);

  void abandon_after_fork() { events_.abandon_after_fork(); }

 private:
  struct Handle {
    rdma_event_channel channel{};
    Channel* owner = nullptr;
  };

  Handle handle_{.channel = {}, .owner = this};
  device::EventQueue<std::unique_ptr<Event>> events_;
};

}  // namespace weft::cm
