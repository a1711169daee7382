// A port of rdma_cm's UDP space, where a peer asks for the number and key of a queue pair. It is
// the UDP port of the same number; see wire/service_query.h for the packets.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "device/datagram/datagram_socket.h"
#include "device/device.h"
#include "wire/service_query.h"

namespace weft::cm {

class ServicePort final : public device::Pollable,
                          public std::enable_shared_from_this<ServicePort> {
 public:
  using Status = wire::ServiceQuery::Status;

  // A request of a peer. The peer repeats it until it is answered; it is reported once.
  struct Request {
    device::DatagramRoute route;
    std::uint32_t identification = 0;
    std::vector<std::byte> private_data{};
  };
  struct Answer {
    Status status = Status::valid;
    std::uint32_t queue_pair = 0;
    std::uint32_t queue_key = 0;
    std::vector<std::byte> private_data{};
  };
  // This object holds no lock while it calls one of these. Requested returns false if the listener
  // is gone, and Answered gets no answer when the time is over.
  using Requested = std::function<bool(const Request&)>;
  using Answered = std::function<void(const std::optional<Answer>&)>;

  struct Plan {
    sockaddr_storage address{};  // port 0: any
    bool reuse_address = false;
    bool ipv6_only = false;
  };

  // 0 or an errno value.
  [[nodiscard]] static int open(device::Device& device, const Plan& plan,
                                std::shared_ptr<ServicePort>& made);

  [[nodiscard]] const sockaddr_storage& address() const { return socket_->address(); }
  // Starts to report requests. Until then each is answered with "no such service". At most
  // `max_waiting` requests wait for end_wait(); more are ignored, and will be repeated.
  void listen(std::size_t max_waiting, Requested requested);
  // The program has got a request, or will not get it. To be called once for each.
  void end_wait();
  // Answers a request, once. The answer is kept and sent again when the request is repeated.
  void reply(const Request& request, const Answer& answer);
  // Sends a request, and repeats it until there is an answer or `timeout_ns` is over.
  void ask(const device::DatagramRoute& route, unsigned interface_index, Bytes private_data,
           std::uint64_t timeout_ns, Answered answered);
  // When this returns, nothing is called any more. The port stays bound until all requests that
  // were reported are answered. Must not be called from one of the callbacks.
  void close();
  void abandon_after_fork() { socket_->abandon_after_fork(); }

  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

 private:
  // The peer's GID and port, and the identification of its request.
  using Key = std::tuple<std::array<std::uint8_t, 16>, std::uint16_t, std::uint32_t>;
  struct Question {
    device::DatagramRoute route;
    unsigned interface_index = 0;
    std::vector<std::byte> packet;
    std::uint32_t identification = 0;
    std::uint64_t pause_ns = 0;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    Answered answered;
  };

  explicit ServicePort(device::Device& device);
  [[nodiscard]] static Key key_of(const Request& request);
  void arrived(const device::DatagramRoute& route, Bytes packet);
  void on_request(const device::DatagramRoute& route, const wire::ServiceQuery& query);
  void on_reply(const device::DatagramRoute& route, const wire::ServiceQuery& query);
  void send_back(const device::DatagramRoute& route, Bytes packet);
  void forget_old_replies();
  void close_socket_if_done(std::unique_lock<std::mutex>& lock);

  device::Device& device_;
  std::shared_ptr<device::DatagramSocket> socket_;
  std::mutex mutex_;
  bool closing_ = false;  // close() was called
  bool closed_ = false;   // the socket is closed
  Requested requested_;
  std::size_t max_waiting_ = 0;
  std::size_t waiting_ = 0;
  std::map<Key, std::vector<std::byte>> replies_;  // empty: not answered yet
  std::deque<Key> answered_;                       // keys of the other ones, the oldest first
  std::optional<Question> question_;
};

}  // namespace weft::cm
