// The carrier of UD queue pairs: one RoCE v2 packet in UDP for each message (see datagram/). The
// packet is built when the request is posted, and no peer answers it. Packets that are posted one
// by one may leave together: see gathering.h.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device/completion/completion_queue.h"
#include "device/datagram/datagram_packet.h"
#include "device/datagram/datagrams.h"
#include "device/queue_pair/carrier.h"
#include "device/queue_pair/deferral.h"
#include "device/queue_pair/gathering.h"
#include "device/queue_pair/queue_pair_parts.h"

namespace weft::device {

// Of IBV_QPT_UD, from the creation of the queue pair to its end.
class DatagramCarrier final : public Carrier {
 public:
  // `receiver` is notified when the socket has room again, `queue_pair` when what was gathered is
  // due. Both are the queue pair itself.
  DatagramCarrier(QueuePairParts& parts, std::weak_ptr<DatagramReceiver> receiver,
                  std::weak_ptr<Pollable> queue_pair)
      : parts_(parts),
        receiver_(std::move(receiver)),
        deferral_(parts.context.engine(), std::move(queue_pair)) {}

  // A packet has arrived for the queue pair. False where it could not be placed, so that the queue
  // pair must fail.
  [[nodiscard]] bool take(const Datagram& datagram, QueuePairLock& lock);

  // What only datagrams demand of a request: 0 or EINVAL. Needs no lock.
  [[nodiscard]] static int check(const ibv_send_wr& request, const ibv_qp& qp,
                                 std::uint32_t inline_bytes);

  int start(QueuePairLock& /*lock*/) override { return 0; }
  [[nodiscard]] bool takes_requests(const QueuePairLock& /*lock*/) const override { return true; }
  [[nodiscard]] bool takes_send_immediate(const QueuePairLock& /*lock*/) const override {
    return true;
  }
  int post(const SendRequest& request, QueuePairLock& lock) override;
  void posted(QueuePairLock& lock) override;
  void advance(QueuePairLock& lock) override;
  // What finds no receive is dropped, so nothing waits for one.
  void receives_posted(QueuePairLock& /*lock*/) override {}
  // Sends what was gathered. The sockets serve several queue pairs: the engine finds the one that
  // is ready.
  void drive(Occasion occasion, QueuePairLock& lock) override;
  void retry_attributes_changed(QueuePairLock& /*lock*/) override {}
  [[nodiscard]] bool requests_done(const QueuePairLock& /*lock*/) const override {
    return unsent_.empty();
  }

  [[nodiscard]] bool ended(const QueuePairLock& /*lock*/) const override { return false; }
  [[nodiscard]] End end(const QueuePairLock& /*lock*/) const override { return {}; }
  void disconnect(QueuePairLock& lock) override { flush(lock); }
  void flush(QueuePairLock& lock) override;
  void stop(QueuePairLock& lock) override;
  [[nodiscard]] bool permanent() const override { return true; }

  // Packets hold copies.
  void forget_memory(const std::byte* /*base*/, std::size_t /*length_bytes*/,
                     QueuePairLock& /*lock*/) override {}
  void add_counters(QueuePairCounters& /*counters*/) const override {}
  void abandon_after_fork() override {}

 private:
  // A finished packet that the socket has no room for, or that waits behind such a one. It needs
  // the application's memory no more.
  struct Unsent {
    std::uint64_t wr_id = 0;
    bool signaled = true;
    iwarp::Status status = iwarp::Status::success;  // otherwise there is no packet
    DatagramRoute route{};
    unsigned interface_index = 0;
    std::vector<std::byte> packet{};
  };

  [[nodiscard]] iwarp::Status collect_pieces(const iwarp::WorkRequest& work);
  void build(const ibv_send_wr& request, Unsent& datagram);
  [[nodiscard]] bool may_gather() const;
  void send_gathered(QueuePairLock& lock);
  [[nodiscard]] bool transmit_some();
  void flush_all();
  void complete_oldest(iwarp::Status status);
  void complete(const Unsent& datagram, iwarp::Status status);
  void stop_sending();
  [[nodiscard]] iwarp::Status place(const iwarp::ReceiveRequest& receive, const Datagram& datagram);
  void complete_receive(std::uint64_t wr_id, iwarp::Status status, const Datagram& datagram);

  QueuePairParts& parts_;
  std::weak_ptr<DatagramReceiver> receiver_;
  Gathering gathering_;
  Deferral deferral_;  // of what was gathered
  std::deque<Unsent> unsent_;
  std::uint32_t uncompleted_ = 0;  // unsignaled datagrams sent since the last completion
  std::vector<iovec> pieces_;
};

}  // namespace weft::device
