// One rdma_cm_id and what is behind it: rdma_create_id(3).
//
// The program's threads, the progress thread and polling threads meet here. One lock covers the
// state; it is taken before a channel's lock, and never held while a queue pair, a dialer or a
// greeting is called, since those call back.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cm/addrinfo.h"
#include "cm/event_channel.h"
#include "cm/registry.h"
#include "cm/reservation.h"
#include "cm/service_port.h"
#include "device/connect/dialer.h"
#include "device/connect/greeting.h"
#include "device/connect/listener.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::cm {

// rdma_conn_param(3), with the defaults filled in.
struct ConnectWishes {
  std::uint16_t responder_resources = 0;
  std::uint16_t initiator_depth = 0;
  std::uint8_t rnr_retries = iwarp::rnr_retry_infinite;  // of the peer's Sends
  std::uint32_t qp_num = 0;                              // where the id has no queue pair
  std::vector<std::byte> private_data;
};

// All functions that return int give 0 or an errno value.
class Identifier final : public device::ConnectionObserver,
                         public std::enable_shared_from_this<Identifier> {
 public:
  Identifier(std::shared_ptr<Registry> registry, std::shared_ptr<Channel> channel, bool synchronous,
             void* context, rdma_port_space ps, ibv_qp_type qp_type);

  [[nodiscard]] rdma_cm_id* handle() { return &handle_.id; }
  [[nodiscard]] static Identifier* of(rdma_cm_id* id) {
    return reinterpret_cast<Handle*>(id)->owner;
  }

  // Events. A delivered one is acknowledged once; wait_for_acknowledgements() returns when all are.
  void count_delivered() { delivered_.fetch_add(1); }
  void acknowledge();
  void wait_for_acknowledgements();
  [[nodiscard]] std::shared_ptr<Channel> channel();
  [[nodiscard]] bool synchronous();
  void migrate(const std::shared_ptr<Channel>& channel, bool synchronous);
  // A connection request was fetched from `channel`: from now on its id is the program's.
  void deliver(const std::shared_ptr<Channel>& channel, bool synchronous);
  // The program has been told that the connection is gone: there is nothing left to wait for.
  [[nodiscard]] bool told_of_end() const { return told_of_end_.load(); }
  void note_told_of_end() { told_of_end_.store(true); }

  int set_option(int name, const void* value, std::size_t bytes);
  int bind(const sockaddr_storage& address);
  int resolve_address(const sockaddr_storage& source, const sockaddr_storage& destination);
  int resolve_route();
  // What somebody else looks up meanwhile ends with an event.
  int begin_addrinfo();
  void end_addrinfo(AddressInfo::Owned found, int failed);
  int query_addrinfo(rdma_addrinfo** result);
  int write_event(int status, std::uint64_t argument);
  int qp_attributes(ibv_qp_attr& attributes, int& mask);

  int listen(int backlog);
  // A listener without an address: its connections come from whoever has accepted them.
  int adopt(device::sys::Descriptor connection);
  void on_request(const std::shared_ptr<device::Greeting>& greeting);

  int connect(ConnectWishes wishes);
  int establish();
  int accept(ConnectWishes wishes);
  // What rdma_accept(3) takes where the program names nothing.
  [[nodiscard]] ConnectWishes requested_wishes();
  int reject(Bytes private_data);
  int disconnect();

  // Of the UDP port space: there are datagrams, and no connections.
  [[nodiscard]] bool is_datagram() const { return handle_.id.ps == RDMA_PS_UDP; }
  int join_group(const sockaddr_storage& address, bool send_only, void* context);
  int leave_group(const sockaddr_storage& address);

  // Ends whatever is under way; afterwards no event comes any more.
  void shut();
  void abandon_after_fork();
  [[nodiscard]] bool abandoned() const { return abandoned_; }

  // What rdma_create_ep(3) keeps for later.
  std::optional<ibv_qp_init_attr> endpoint_attributes;
  std::vector<std::byte> endpoint_private_data;

 private:
  enum class Stage : std::uint8_t {
    idle,
    bound,
    resolved,
    routed,
    listening,
    connecting,
    responded,  // active: the peer has accepted; rdma_establish(3) is awaited
    requested,  // passive: the program has to accept or to reject
    accepting,  // passive: the reply is on its way, or the peer's first FPDU is awaited
    connected,
    ended,  // disconnected, rejected or failed
    destroyed,
  };

  struct Handle {
    rdma_cm_id id{};
    Identifier* owner = nullptr;
    ibv_sa_path_rec path{};
  };
  class ReadyTimer;

  void on_stream_ready() override;
  void on_stream_ended(iwarp::EndReason reason) override;

  [[nodiscard]] std::unique_ptr<Event> make_event(rdma_cm_event_type type, int status = 0);
  void push(std::unique_ptr<Event> event);
  void push(rdma_cm_event_type type, int status = 0) { push(make_event(type, status)); }
  // ESTABLISHED or CONNECT_RESPONSE, with what was agreed on.
  void push_connected(rdma_cm_event_type type, Bytes private_data);

  int open_service_port(const sockaddr_storage& address);
  int listen_for_datagrams(int backlog);
  void on_service_request(const ServicePort::Request& request);
  int accept_datagrams(const ConnectWishes& wishes);
  int reject_datagrams(Bytes private_data);
  int connect_datagrams(const ConnectWishes& wishes);
  void on_service_answer(const std::optional<ServicePort::Answer>& answer);
  int end_datagrams();
  void set_address_vector(ibv_ah_attr& vector, const ibv_gid& destination);

  int bind_locked(const sockaddr_storage& address);
  int check_local(const sockaddr_storage& address);
  int use_device();
  void set_path();
  [[nodiscard]] ibv_mtu path_mtu();
  static void set_datagram_attributes(ibv_qp_attr& attributes, int& mask);
  void set_receive_attributes(ibv_qp_attr& attributes, int& mask);
  void set_send_attributes(ibv_qp_attr& attributes, int& mask);
  void set_source(const sockaddr_storage& tcp_address);
  void note_source(const sockaddr_storage& tcp_address);
  void set_destination(const sockaddr_storage& tcp_address);
  [[nodiscard]] sockaddr_storage tcp_source();
  int choose_group_source(const sockaddr_storage& group, sockaddr_storage& source);
  int resolve_locked(sockaddr_storage source, sockaddr_storage destination);
  [[nodiscard]] std::shared_ptr<device::Listener> make_listener(device::Device& device,
                                                                std::size_t requests);
  int choose_queue_pair(std::uint32_t number, std::shared_ptr<device::QueuePair>& found);
  [[nodiscard]] std::shared_ptr<device::Dialer> make_dialer(ConnectWishes wishes);
  void on_dialed(device::Dialer::Outcome outcome);
  void on_dial_failed(std::unique_lock<std::mutex>& lock, const device::Dialer::Outcome& outcome);
  void on_replied(device::StreamSocket stream);
  [[nodiscard]] device::StreamParameters agreed(bool initiator);
  // 0, or why the queue pair did not take the stream. The lock is released meanwhile.
  int attach(std::unique_lock<std::mutex>& lock, device::StreamSocket socket, bool initiator);
  void after_attach(int failed, bool tell_established, Bytes private_data);
  void on_ready_timeout();

  Handle handle_;
  std::shared_ptr<Registry> registry_;

  std::mutex mutex_;
  Stage stage_ = Stage::idle;
  std::shared_ptr<Channel> channel_;
  bool synchronous_;
  SocketOptions options_;
  bool resolving_addrinfo_ = false;
  AddressInfo::Owned addrinfo_;
  std::uint8_t ack_timeout_ = 18;  // 4.096 us doubled so often: a second
  device::sys::Descriptor reserved_;

  // Of the UDP port space. A request has its listener's port until it is answered.
  struct Group {
    sockaddr_storage address;
    ibv_gid gid;
    bool attached;
  };
  std::shared_ptr<ServicePort> service_port_;
  ServicePort::Request service_request_;
  std::vector<Group> groups_;

  std::shared_ptr<device::Listener> listener_;
  std::shared_ptr<device::Listener> origin_;  // of a request, until the program has fetched it
  std::shared_ptr<device::Dialer> dialer_;
  std::shared_ptr<device::Greeting> greeting_;
  std::shared_ptr<ReadyTimer> ready_timer_;
  bool external_queue_pair_ = false;
  std::weak_ptr<device::QueuePair> queue_pair_;
  std::uint16_t asked_ord_ = 0;
  std::uint8_t rnr_retries_ = iwarp::rnr_retry_infinite;
  iwarp::Negotiated negotiated_;
  device::StreamSocket waiting_;  // between CONNECT_RESPONSE and rdma_establish(3)
  bool attaching_ = false;        // what the stream says meanwhile is told afterwards
  bool ready_early_ = false;
  bool ended_early_ = false;

  std::atomic<bool> abandoned_{false};
  std::atomic<bool> told_of_end_{false};
  std::atomic<std::uint32_t> delivered_{0};
  std::mutex acknowledge_mutex_;
  std::condition_variable all_acknowledged_;
  std::uint32_t acknowledged_ = 0;
};

}  // namespace weft::cm
