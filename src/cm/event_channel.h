// Event channels and the events on them: rdma_create_event_channel(3), rdma_get_cm_event(3).
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/kept_memory.h"
#include "device/completion/event_queue.h"

namespace weft::device {
class ProcessPair;
}

namespace weft::cm {

class Identifier;
class Registry;

// An event, from push() to rdma_ack_cm_event(3).
struct Event {
  rdma_cm_event event{};  // first: see of()
  std::array<std::byte, 256> private_data{};
  // The id to which the event belongs: destroying it blocks until the event is acknowledged. A
  // connection request belongs to the listener.
  std::shared_ptr<Identifier> owner;
  // The new id of a connection request, until it is delivered.
  std::shared_ptr<Identifier> request;

  [[nodiscard]] static Event* of(rdma_cm_event* event) { return reinterpret_cast<Event*>(event); }
  // Copies as much as rdma_conn_param::private_data_len can count; zeros follow up to `least`
  // bytes.
  void set_private_data(Bytes bytes, std::size_t least = 0);
};

// An event channel. The program and the ids on it share it: if the program destroys it too early,
// later events are lost, but nothing else happens.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // For ids of this registry. Null with errno set where no descriptor is left.
  [[nodiscard]] static std::shared_ptr<Channel> create(std::shared_ptr<Registry> registry);
  explicit Channel(std::shared_ptr<Registry> registry);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] rdma_event_channel* handle() { return &handle_->channel; }
  // Null for a channel that was destroyed.
  [[nodiscard]] static Channel* of(rdma_event_channel* channel) {
    return Handle::of(channel)->owner;
  }

  [[nodiscard]] const std::shared_ptr<Registry>& registry() const { return registry_; }
  void push(std::unique_ptr<Event> event);
  [[nodiscard]] bool has_event() const { return events_.has_event(); }
  // Takes the next event. The caller must have taken a token from the descriptor; null where the
  // event was withdrawn meanwhile. Counts the event as delivered to its owner.
  [[nodiscard]] std::unique_ptr<Event> take();
  // Takes back the events of `owner` that are not delivered yet, in order.
  [[nodiscard]] std::vector<std::unique_ptr<Event>> withdraw(const Identifier* owner);

  // Called around rdma_get_cm_event(3). Null where the channel is destroyed: a thread that a
  // program (rping) has only just started may come after the program has failed and destroyed the
  // channel. A thread that is cancelled never calls end_reading(); it must not unwind through
  // destructors.
  [[nodiscard]] static Channel* begin_reading(rdma_event_channel* channel);
  static void end_reading(rdma_event_channel* channel) { --Handle::of(channel)->readers; }
  // The program destroys the channel: from now on of() and begin_reading() return null.
  void retire() { handle_->owner = nullptr; }
  // A thread is waiting for events. The channel must live until it stops, even if the program has
  // destroyed it: the thread then waits for ever, as with a kernel device, and its descriptor is
  // not reused for something else.
  [[nodiscard]] bool is_being_read() const;
  // Called before the channel is destroyed. A thread that has acknowledged its last event returns
  // to rdma_get_cm_event(3), and programs (rping) destroy the channel without waiting for it. Waits
  // a moment until the thread is there, so that it does not use a destroyed channel.
  void await_reader() const;

  // The calling thread waits for the next event at that pair of processes (PairWait), and is to be
  // woken there. False: another thread does so already.
  [[nodiscard]] bool begin_pair_wait(device::ProcessPair& pair);
  void end_pair_wait();

  void abandon_after_fork() {
    abandoned_ = true;
    events_.abandon_after_fork();
    handle_->channel.fd = -1;  // another file of the child may get the number
  }
  [[nodiscard]] bool abandoned() const { return abandoned_; }

 private:
  // What the program knows of a channel. The last ones live on for a while after their channels.
  struct Handle : KeptMemory {
    rdma_event_channel channel{};  // first: see of()
    std::atomic<Channel*> owner{nullptr};
    std::atomic<int> readers{0};
    std::atomic<int> last_reader{0};  // thread id; 0: none yet

    [[nodiscard]] static Handle* of(rdma_event_channel* channel) {
      return reinterpret_cast<Handle*>(channel);
    }
    static void keep_for_a_while(std::unique_ptr<Handle> handle);
  };

  const std::shared_ptr<Registry> registry_;
  bool abandoned_ = false;
  std::unique_ptr<Handle> handle_ = std::make_unique<Handle>();
  device::EventQueue<std::unique_ptr<Event>> events_;
  std::mutex waited_mutex_;                            // of changes of what follows
  std::atomic<device::ProcessPair*> waited_{nullptr};  // begin_pair_wait()
};

}  // namespace weft::cm
