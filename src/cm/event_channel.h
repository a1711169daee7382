// Event channels and the events on them: rdma_create_event_channel(3), rdma_get_cm_event(3).
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "device/completion/event_queue.h"

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

  // Around rdma_get_cm_event(3). A thread that is cancelled in it does not come to the end: no
  // destructor may stand there.
  void begin_reading();
  void end_reading() { --readers_; }
  // So long it has to live, also where it was destroyed meanwhile: then the thread waits for ever,
  // as with a kernel device, and the descriptor becomes nobody else's under it.
  [[nodiscard]] bool is_being_read() const;
  // Before it is destroyed. A thread that has acknowledged its last event is on its way back to
  // rdma_get_cm_event(3), and programs (rping) destroy the channel without waiting for that: it
  // shall find the channel. Waits a moment for it, where it lives.
  void await_reader() const;

  void abandon_after_fork() { events_.abandon_after_fork(); }

 private:
  struct Handle {
    rdma_event_channel channel{};
    Channel* owner = nullptr;
  };

  std::atomic<int> readers_{0};
  std::atomic<int> last_reader_{0};  // its thread id
  Handle handle_{.channel = {}, .owner = this};
  device::EventQueue<std::unique_ptr<Event>> events_;
};

}  // namespace weft::cm
