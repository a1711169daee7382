// A listening socket: every connection has an InboundHandshake until its MPA request arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device/connect/inbound_handshake.h"
#include "device/device.h"
#include "device/engine.h"

namespace weft::device {

class Listener final : public Pollable,
                       public PairListener,
                       public std::enable_shared_from_this<Listener> {
 public:
  struct Plan {
    sys::Descriptor socket;  // listening already; none: connections only come by adopt()
    int tos = -1;            // for every connection; negative: the system's
    // The number of requests that were reported and not yet fetched; more wait in the kernel's
    // queue.
    std::size_t max_requests = SIZE_MAX;
    std::uint64_t handshake_timeout_ns = 0;
    // Both are called without any lock: when a request arrives, and when a connection fails before.
    std::function<void(const std::shared_ptr<InboundHandshake>&)> requested{};
    std::function<void()> dropped{};
  };

  Listener(Device& device, Plan plan);

  // 0 or ENOMEM.
  int start();
  // Takes over a connection that was accepted elsewhere. 0, or ENOBUFS where too many are half
  // open. A socket that listens is kept until stop() and not accepted from: peers on this host find
  // this process for the connections that others accept from it (see local/local_channel.h).
  int adopt(sys::Descriptor connection);
  // Whether requests for the listening socket that was adopted may come without TCP. If not, the
  // socket is closed, and peers do not find this process any more. 0, or EINVAL where there is
  // none.
  int serve_host(bool serves);
  // Takes the request of a process of this host that comes without TCP. Where there is no room
  // the peer uses TCP, whose queue is longer.
  void take(PairEnd end, const TcpEnds& ends, Bytes frame) override;
  // Closes the socket and every connection that is not a request yet.
  void stop();
  // Closes the socket, once what waits in TCP's queue is accepted. Connections only come by adopt()
  // from then on.
  void close_socket();
  // Accepts from this socket, which listens, from now on. Only without one.
  void open_socket(sys::Descriptor listening);
  // The application has fetched a request, so there is room for another.
  void request_fetched();
  void abandon_after_fork();

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  [[nodiscard]] std::shared_ptr<InboundHandshake> accept_one(sockaddr_storage& peer);
  [[nodiscard]] std::shared_ptr<InboundHandshake> begin_handshake(sys::Descriptor fd,
                                                                  const sockaddr_storage& peer);
  [[nodiscard]] std::shared_ptr<InboundHandshake> make_inbound(sys::Descriptor fd,
                                                               const TcpEnds& ends);
  [[nodiscard]] std::shared_ptr<InboundHandshake> make_inbound(StreamSocket socket);
  void offer_local();
  void forget_local();
  [[nodiscard]] bool has_room() const;
  [[nodiscard]] bool make_room();
  void announce(sys::Descriptor listening);
  void forget_announced();
  void limit_source(const sockaddr_storage& peer);
  void watch();
  void pause();
  void on_requested(const std::shared_ptr<InboundHandshake>& inbound);
  void on_failed(const std::shared_ptr<InboundHandshake>& inbound);

  Device& device_;
  Plan plan_;

  std::mutex mutex_;
  std::uint64_t token_ = 0;
  bool has_local_ = false;     // peers on this host find us outside of TCP as well
  sys::Descriptor announced_;  // a listening socket that others accept from
  bool serves_host_ = false;   // for which requests may come without TCP
  // In the order of their arrival, so that a simulation repeats what stop() does.
  std::vector<std::shared_ptr<InboundHandshake>> unfinished_;
  std::size_t requests_ = 0;
};

}  // namespace weft::device
