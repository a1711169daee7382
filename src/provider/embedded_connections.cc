// Connection management: the functions of cm::Manager as members of the table.
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/host_requests.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using cm::Manager;

// Calls a member function of this process's manager.
template <auto member>
struct Forward;

template <typename R, typename... Arguments, R (Manager::*member)(Arguments...)>
struct Forward<member> {
  static R call(Arguments... arguments) {
    return (Process::current().manager().*member)(arguments...);
  }
};

template <auto member>
inline constexpr auto* forward = cm_call<&Forward<member>::call>;

// With the device that the process shares it is as without a device.
rdma_event_channel* create_event_channel_on(ibv_context* context) {
  if (!Process::owns(context)) return fail_null(ENODEV);
  Process& process = Process::current();
  // A device without a thread makes no progress while threads wait for its events.
  const device::Engine& engine = device::Context::of(context)->engine();
  const bool idle = engine.mode() == device::ProgressMode::manual && !engine.simulated();
  if (idle && !process.is_default(context)) return fail_null(EINVAL);
  Manager* const own = process.other_devices().manager(*device::Context::of(context));
  return (own ? *own : process.manager()).create_event_channel();
}

void events_and_ids(Table& table) {
  table.create_event_channel = forward<&Manager::create_event_channel>;
  table.create_event_channel_on = cm_call<create_event_channel_on>;
  table.destroy_event_channel = forward<&Manager::destroy_event_channel>;
  // Not guarded: a thread may be cancelled in it, and must find no frame that needs a destructor.
  table.get_cm_event = Forward<&Manager::get_cm_event>::call;
  table.ack_cm_event = forward<&Manager::ack_cm_event>;
  table.event_str = cm_call<&cm::event_str>;
  table.create_id = forward<&Manager::create_id>;
  table.destroy_id = forward<&Manager::destroy_id>;
  table.create_ep = forward<&Manager::create_ep>;
  table.destroy_ep = forward<&Manager::destroy_ep>;
  table.migrate_id = forward<&Manager::migrate_id>;
  table.set_option = forward<&Manager::set_option>;
  table.get_src_port = cm_call<&Manager::get_src_port>;
  table.get_dst_port = cm_call<&Manager::get_dst_port>;
  table.bind_addr = forward<&Manager::bind_addr>;
  table.resolve_addr = forward<&Manager::resolve_addr>;
  table.resolve_route = forward<&Manager::resolve_route>;
  table.getaddrinfo = forward<&Manager::getaddrinfo>;
  table.freeaddrinfo = cm_call<&cm::freeaddrinfo>;
  table.resolve_addrinfo = forward<&Manager::resolve_addrinfo>;
  table.query_addrinfo = forward<&Manager::query_addrinfo>;
  table.write_cm_event = forward<&Manager::write_cm_event>;
  table.get_devices = forward<&Manager::get_devices>;
  table.free_devices = cm_call<&Manager::free_devices>;
}

void queues_of_ids(Table& table) {
  table.id_create_qp = forward<&Manager::create_qp>;
  table.id_create_qp_ex = forward<&Manager::create_qp_ex>;
  table.id_destroy_qp = forward<&Manager::destroy_qp>;
  table.id_create_srq = forward<&Manager::create_srq>;
  table.id_create_srq_ex = forward<&Manager::create_srq_ex>;
  table.id_destroy_srq = forward<&Manager::destroy_srq>;
  table.init_qp_attr = forward<&Manager::init_qp_attr>;
}

}  // namespace

void parts::connections(Table& table) {
  events_and_ids(table);
  queues_of_ids(table);
  table.connect = forward<&Manager::connect>;
  table.establish = forward<&Manager::establish>;
  table.listen = forward<&Manager::listen>;
  table.get_request = forward<&Manager::get_request>;
  table.adopt = forward<&Manager::adopt>;
  table.accept = forward<&Manager::accept>;
  table.reject = forward<&Manager::reject>;
  table.reject_ece = forward<&Manager::reject_ece>;
  table.notify = forward<&Manager::notify>;
  table.disconnect = forward<&Manager::disconnect>;
  table.join_multicast = forward<&Manager::join_multicast>;
  table.join_multicast_ex = forward<&Manager::join_multicast_ex>;
  table.leave_multicast = forward<&Manager::leave_multicast>;
  table.set_local_ece = forward<&Manager::set_local_ece>;
  table.get_remote_ece = forward<&Manager::get_remote_ece>;
}

int serve_host(rdma_cm_id* listener, bool serves) {
  return forward<&Manager::serve_host>(listener, serves);
}

}  // namespace weft::provider
