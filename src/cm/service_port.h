// A port of rdma_cm's UDP space: who asks there for a queue pair is told its number and key. It is
// the UDP port of that number; see wire/service_query.h for what travels.
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

  // Of somebody who asks. The same question comes again until it is answered; it is told once.
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
  // Both are called without any lock of this object.
  using Requested = std::function<void(const Request&)>;
  using Answered = std::function<void(const std::optional<Answer>&)>;  // nothing: nobody answered

  struct Plan {
    sockaddr_storage address{};  // port 0: any
    bool reuse_address = false;
    bool ipv6_only = false;
  };

  // 0 or an errno value.
  [[nodiscard]] static int open(device::Device& device, const Plan& plan,
                                std::shared_ptr<ServicePort>& made);

  [[nodiscard]] const sockaddr_storage& address() const { return socket_->address(); }
  // Until then whoever asks is told that there is no such service. At most so many requests wait
  // for an answer; more are passed over, and come again.
  void listen(std::size_t max_waiting, Requested requested);
  void reply(const Request& request, const Answer& answer);
  // Asks, again and again, until there is an answer or `timeout_ns` is over.
  void ask(const device::DatagramRoute& route, unsigned interface_index, Bytes private_data,
           std::uint64_t timeout_ns, Answered answered);
  // Nothing is called any more when this returns. Not from one of the calls above.
  void close();
  void abandon_after_fork() { socket_->abandon_after_fork(); }

  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

 private:
  // Who asked, and which of his questions it is.
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

  device::Device& device_;
  std::shared_ptr<device::DatagramSocket> socket_;
  std::mutex mutex_;
  bool closed_ = false;
  Requested requested_;
  std::size_t max_waiting_ = 0;
  std::size_t waiting_ = 0;
  std::map<Key, std::vector<std::byte>> replies_;  // empty: the answer is still to come
  std::deque<Key> answered_;                       // the oldest first
  std::optional<Question> question_;
};

}  // namespace weft::cm
