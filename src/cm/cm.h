// Connection management with the semantics of librdmacm, over TCP: rdma_cm(7).
//
// Each member function is the librdmacm call of the same name with `rdma_` in front, and keeps the
// contract of its man page: what it returns, which errno it sets, which event follows. Calls that
// return int give 0 or -1 with errno set. None throws, except that memory may run out.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "device/limits.h"

namespace weft::device {
class Context;
}

namespace weft::cm {

class Channel;
class Registry;

struct Options {
  // Passive side: a connection without a whole MPA request is dropped. Active side: the user is
  // informed that there is no reply yet.
  std::uint64_t handshake_timeout_ns = device::limits::handshake_ns;
  // Active side: the peer's program has neither accepted nor rejected; UNREACHABLE. No value: as
  // long as adapters wait, limits::reply_ns or, in iwarp, as long as for a handshake.
  std::optional<std::uint64_t> reply_timeout_ns{};
  // TCP connection set-up, before the handshake begins.
  std::uint64_t connect_timeout_ns = device::limits::connect_ns;
  // Passive side: from our reply to the peer's first FPDU.
  std::uint64_t first_fpdu_timeout_ns = device::limits::first_fpdu_ns;
};

// A snapshot of the counters of all ids of one Manager.
struct Counters {
  std::uint64_t connections_active = 0;    // established, this side connected
  std::uint64_t connections_passive = 0;   // established, this side listened
  std::uint64_t revision_1_fallbacks = 0;  // the peer closed on MPA revision 2
  std::uint64_t unacknowledged = 0;    // the peer allows no reads: completions mean "TCP has it"
  std::uint64_t addresses_in_use = 0;  // EADDRINUSE returned to the application
  std::uint64_t requests_dropped = 0;  // no MPA, malformed, or timed out before the request
};

// rdma_event_str(3), rdma_freeaddrinfo(3).
const char* event_str(rdma_cm_event_type event);
void freeaddrinfo(rdma_addrinfo* info);

// Ids and channels belong to the device of the manager that has made them. The calls for existing
// ones work with any manager of the process.
class Manager {
 public:
  // `context` is called when the device is first needed. It opens the device, and returns the same
  // context each time; null with errno set where there is no device. The context must outlive this
  // object.
  explicit Manager(std::function<device::Context*()> context, const Options& options = {});
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  [[nodiscard]] Counters counters() const;
  // Ids or event channels exist.
  [[nodiscard]] bool has_objects() const;
  // In the child after fork(): ids and channels that existed before may only be destroyed. Call it
  // after Device::abandon_after_fork(), which has closed the descriptors.
  void abandon_after_fork();

  // Event channels: rdma_create_event_channel(3), rdma_get_cm_event(3).
  rdma_event_channel* create_event_channel();
  void destroy_event_channel(rdma_event_channel* channel);
  int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event);
  int ack_cm_event(rdma_cm_event* event);

  // Identifiers.
  int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps);
  int destroy_id(rdma_cm_id* id);
  int create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* domain, ibv_qp_init_attr* attributes);
  void destroy_ep(rdma_cm_id* id);
  int migrate_id(rdma_cm_id* id, rdma_event_channel* channel);
  int set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes);
  static std::uint16_t get_src_port(rdma_cm_id* id);  // network order
  static std::uint16_t get_dst_port(rdma_cm_id* id);  // network order

  // Addresses.
  int bind_addr(rdma_cm_id* id, sockaddr* address);
  int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms);
  int resolve_route(rdma_cm_id* id, int timeout_ms);
  int getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                  rdma_addrinfo** result);
  // Looks up names only. There is no subnet administrator, so RAI_SA is EOPNOTSUPP.
  int resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                       const rdma_addrinfo* hints);
  int query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
  int write_cm_event(rdma_cm_id* id, int event, int status, std::uint64_t argument);

  // Devices.
  ibv_context** get_devices(int* count);
  static void free_devices(ibv_context** list);

  // Queue pairs and shared receive queues of an id.
  int create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* attributes);
  int create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes);
  void destroy_qp(rdma_cm_id* id);
  int create_srq(rdma_cm_id* id, ibv_pd* domain, ibv_srq_init_attr* attributes);
  int create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes);
  void destroy_srq(rdma_cm_id* id);
  int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask);

  // Connections.
  int connect(rdma_cm_id* id, rdma_conn_param* parameters);
  int establish(rdma_cm_id* id);
  int listen(rdma_cm_id* id, int backlog);
  int get_request(rdma_cm_id* listener, rdma_cm_id** id);
  // Passes a TCP connection that was accepted elsewhere to a new id, or to one that was used for
  // this before. The id listens for such connections only and has no address. Takes the descriptor
  // in any case.
  int adopt(rdma_cm_id* listener, int connection);
  int serve_host(rdma_cm_id* listener, bool serves);
  int accept(rdma_cm_id* id, rdma_conn_param* parameters);
  int reject(rdma_cm_id* id, const void* private_data, std::uint8_t private_data_bytes);
  int reject_ece(rdma_cm_id* id, const void* private_data, std::uint8_t private_data_bytes);
  int notify(rdma_cm_id* id, ibv_event_type event);
  int disconnect(rdma_cm_id* id);

  // Groups of the UDP port space.
  int join_multicast(rdma_cm_id* id, sockaddr* address, void* context);
  int join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes, void* context);
  int leave_multicast(rdma_cm_id* id, sockaddr* address);
  // Enhanced connection establishment negotiates features of one vendor's adapters: EOPNOTSUPP.
  int set_local_ece(rdma_cm_id* id, ibv_ece* ece);
  int get_remote_ece(rdma_cm_id* id, ibv_ece* ece);

 private:
  [[nodiscard]] const std::shared_ptr<Registry>& registry_of(const Channel& channel) const;
  int await_cm_event(Channel& channel, rdma_cm_event** event);
  bool take_cm_event(Channel& channel, rdma_cm_event** event);

  int complete(rdma_cm_id* id);
  int refuse(rdma_cm_event* request, int reason);
  int passive_endpoint(rdma_cm_id* id, const rdma_addrinfo& info, ibv_pd* domain,
                       const ibv_qp_init_attr* attributes);
  int active_endpoint(rdma_cm_id* id, const rdma_addrinfo& info, ibv_pd* domain,
                      ibv_qp_init_attr* attributes);

  std::shared_ptr<Registry> registry_;
};

}  // namespace weft::cm
