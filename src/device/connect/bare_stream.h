// The stream of a connection of rdma_cm that has no queue pair. InfiniBand's connection management
// knows queue pairs by their numbers only, so a program may connect ids with numbers of its own
// (cmtime does, to measure the connection management alone).
//
// It does what keeps a connection alive: it sends or awaits the ready-to-receive message, answers
// empty Reads, and notices the end. The peer has nothing to access here, and nothing that receives:
// other messages end the stream, as one to a queue pair that does not exist fails on an adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/connect/stream_socket.h"
#include "device/device.h"
#include "device/engine.h"
#include "device/queue_pair/queue_pair_parts.h"
#include "iwarp/connection.h"

namespace weft::device {

class BareStream final : public Pollable,
                         public std::enable_shared_from_this<BareStream>,
                         private iwarp::Host {
 public:
  // Takes a socket whose handshake is done, and starts. `parameters`: what was agreed on there. The
  // observer may be notified at once. Null where there is no memory for it. Without any lock, as
  // the other functions.
  static std::shared_ptr<BareStream> start(Device& device, StreamSocket socket,
                                           const iwarp::Connection::Options& parameters,
                                           std::weak_ptr<ConnectionObserver> observer);
  BareStream(Engine& engine, StreamSocket socket, iwarp::Connection::Options parameters,
             std::weak_ptr<ConnectionObserver> observer);

  void disconnect();
  void abandon_after_fork();

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  iwarp::Memory remote_memory(std::uint32_t, std::uint64_t, std::uint64_t,
                              iwarp::RemoteRight) override {
    return {.fault = iwarp::Fault::invalid_stag};
  }
  iwarp::Memory local_memory(const iwarp::LocalSlice&, bool) override {
    return {.fault = iwarp::Fault::invalid_stag};
  }
  bool next_receive(iwarp::ReceiveRequest&) override { return false; }
  bool invalidate(std::uint32_t) override { return false; }
  void complete_send(const iwarp::SendCompletion&) override {}
  void complete_receive(const iwarp::ReceiveCompletion&) override {}
  void on_peer_ready() override { ready_ = true; }
  void on_end(iwarp::EndReason reason) override;

  bool begin();
  void receive_available();
  void send_available();
  void finish();
  void settle(std::unique_lock<std::mutex>& lock);

  Engine& engine_;
  std::mutex mutex_;
  StreamSocket socket_;
  iwarp::Connection connection_;
  const std::weak_ptr<ConnectionObserver> observer_;
  std::uint64_t token_ = 0;
  std::vector<iovec> planned_;
  // For the observer, which is called without the lock.
  bool ready_ = false;
  bool ended_ = false;
  iwarp::EndReason reason_ = iwarp::EndReason::none;
};

}  // namespace weft::device
