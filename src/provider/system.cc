#include "provider/system.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <type_traits>

namespace weft::provider {
namespace {

constexpr const char* verbs_library = "libibverbs.so.1";
constexpr const char* cm_library = "librdmacm.so.1";
// Only the drop-in exports this symbol, for use between its two libraries.
constexpr const char* drop_in_mark = "weft_provider_table";

// Replaces a function that the library does not have.
template <int error, typename R, typename... Arguments>
R missing(Arguments... /*arguments*/) {
  errno = EOPNOTSUPP;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else if constexpr (std::is_enum_v<R>) {
    // Only ibv_is_fork_initialized(3), where 0 is IBV_FORK_DISABLED.
    return R{};
  } else if constexpr (!std::is_void_v<R>) {
    return static_cast<R>(error);
  }
}

template <int error, typename R, typename... Arguments>
void take(void* library, const char* symbol, R (*&slot)(Arguments...)) {
  void* found = dlsym(library, symbol);
  slot = found ? reinterpret_cast<R (*)(Arguments...)>(found) : &missing<error, R, Arguments...>;
}

// Most verbs functions return an errno value, so a missing one returns EOPNOTSUPP.
void take_verbs(void* library, Table& table) {
  const auto function = [library](const char* symbol, auto& slot) {
    take<EOPNOTSUPP>(library, symbol, slot);
  };
  function("ibv_get_device_list", table.get_device_list);
  function("ibv_free_device_list", table.free_device_list);
  function("ibv_get_device_name", table.get_device_name);
  function("ibv_get_device_index", table.get_device_index);
  function("ibv_get_device_guid", table.get_device_guid);
  function("ibv_open_device", table.open_device);
  function("ibv_close_device", table.close_device);
  function("ibv_read_sysfs_file", table.read_sysfs_file);
  function("ibv_query_device", table.query_device);
  function("ibv_query_port", table.query_port);
  function("ibv_query_gid", table.query_gid);
  // The inline functions of verbs.h call these two, and pass the size of their own structure.
  function("_ibv_query_gid_ex", table.query_gid_ex);
  function("_ibv_query_gid_table", table.query_gid_table);
  function("ibv_query_gid_type", table.query_gid_type);
  function("ibv_query_pkey", table.query_pkey);
  function("ibv_get_pkey_index", table.get_pkey_index);
  function("ibv_get_async_event", table.get_async_event);
  function("ibv_ack_async_event", table.ack_async_event);
  function("ibv_fork_init", table.fork_init);
  function("ibv_is_fork_initialized", table.is_fork_initialized);
  function("ibv_alloc_pd", table.alloc_pd);
  function("ibv_dealloc_pd", table.dealloc_pd);
  function("ibv_reg_mr", table.reg_mr);
  function("ibv_reg_mr_iova", table.reg_mr_iova);
  function("ibv_reg_mr_iova2", table.reg_mr_iova2);
  function("ibv_reg_dmabuf_mr", table.reg_dmabuf_mr);
  function("ibv_rereg_mr", table.rereg_mr);
  function("ibv_dereg_mr", table.dereg_mr);
  function("ibv_import_device", table.import_device);
  function("ibv_import_pd", table.import_pd);
  function("ibv_unimport_pd", table.unimport_pd);
  function("ibv_import_mr", table.import_mr);
  function("ibv_unimport_mr", table.unimport_mr);
  function("ibv_import_dm", table.import_dm);
  function("ibv_unimport_dm", table.unimport_dm);
  function("ibv_create_comp_channel", table.create_comp_channel);
  function("ibv_destroy_comp_channel", table.destroy_comp_channel);
  function("ibv_create_cq", table.create_cq);
  function("ibv_resize_cq", table.resize_cq);
  function("ibv_destroy_cq", table.destroy_cq);
  function("ibv_get_cq_event", table.get_cq_event);
  function("ibv_ack_cq_events", table.ack_cq_events);
  function("ibv_create_srq", table.create_srq);
  function("ibv_modify_srq", table.modify_srq);
  function("ibv_query_srq", table.query_srq);
  function("ibv_destroy_srq", table.destroy_srq);
  function("ibv_create_qp", table.create_qp);
  function("ibv_qp_to_qp_ex", table.qp_to_qp_ex);
  function("ibv_modify_qp", table.modify_qp);
  function("ibv_query_qp", table.query_qp);
  function("ibv_query_qp_data_in_order", table.query_qp_data_in_order);
  function("ibv_destroy_qp", table.destroy_qp);
  function("ibv_set_ece", table.set_ece);
  function("ibv_query_ece", table.query_ece);
  function("ibv_create_ah", table.create_ah);
  function("ibv_create_ah_from_wc", table.create_ah_from_wc);
  function("ibv_init_ah_from_wc", table.init_ah_from_wc);
  function("ibv_destroy_ah", table.destroy_ah);
  function("ibv_attach_mcast", table.attach_mcast);
  function("ibv_detach_mcast", table.detach_mcast);
  function("ibv_resolve_eth_l2_from_gid", table.resolve_eth_l2_from_gid);
}

// Sets a member that rdma-core has no function for.
template <typename R, typename... Arguments>
void leave_out(R (*&slot)(Arguments...)) {
  slot = &missing<EOPNOTSUPP, R, Arguments...>;
}

// Most functions of rdma_cm return -1 and set errno.
void take_cm(void* library, Table& table) {
  const auto function = [library](const char* symbol, auto& slot) {
    take<-1>(library, symbol, slot);
  };
  function("rdma_create_event_channel", table.create_event_channel);
  function("rdma_destroy_event_channel", table.destroy_event_channel);
  function("rdma_get_cm_event", table.get_cm_event);
  function("rdma_ack_cm_event", table.ack_cm_event);
  function("rdma_event_str", table.event_str);
  function("rdma_create_id", table.create_id);
  function("rdma_destroy_id", table.destroy_id);
  function("rdma_create_ep", table.create_ep);
  function("rdma_destroy_ep", table.destroy_ep);
  function("rdma_migrate_id", table.migrate_id);
  function("rdma_set_option", table.set_option);
  function("rdma_get_src_port", table.get_src_port);
  function("rdma_get_dst_port", table.get_dst_port);
  function("rdma_bind_addr", table.bind_addr);
  function("rdma_resolve_addr", table.resolve_addr);
  function("rdma_resolve_route", table.resolve_route);
  function("rdma_getaddrinfo", table.getaddrinfo);
  function("rdma_freeaddrinfo", table.freeaddrinfo);
  function("rdma_resolve_addrinfo", table.resolve_addrinfo);
  function("rdma_query_addrinfo", table.query_addrinfo);
  function("rdma_write_cm_event", table.write_cm_event);
  function("rdma_get_devices", table.get_devices);
  function("rdma_free_devices", table.free_devices);
  function("rdma_create_qp", table.id_create_qp);
  function("rdma_create_qp_ex", table.id_create_qp_ex);
  function("rdma_destroy_qp", table.id_destroy_qp);
  function("rdma_create_srq", table.id_create_srq);
  function("rdma_create_srq_ex", table.id_create_srq_ex);
  function("rdma_destroy_srq", table.id_destroy_srq);
  function("rdma_init_qp_attr", table.init_qp_attr);
  function("rdma_connect", table.connect);
  function("rdma_establish", table.establish);
  function("rdma_listen", table.listen);
  function("rdma_get_request", table.get_request);
  function("rdma_accept", table.accept);
  function("rdma_reject", table.reject);
  function("rdma_reject_ece", table.reject_ece);
  function("rdma_notify", table.notify);
  function("rdma_disconnect", table.disconnect);
  function("rdma_join_multicast", table.join_multicast);
  function("rdma_join_multicast_ex", table.join_multicast_ex);
  function("rdma_leave_multicast", table.leave_multicast);
  function("rdma_set_local_ece", table.set_local_ece);
  function("rdma_get_remote_ece", table.get_remote_ece);
}

// Table::share_memory and Table::take_shared_memory: the peers of a hardware adapter share no
// memory. The call owns both descriptors in any case, so it closes them.
int keep_memory(ibv_qp* /*qp*/, int file, int bell) {
  close(file);
  if (bell >= 0) close(bell);
  return EOPNOTSUPP;
}
int no_memory(ibv_qp* /*qp*/, int* bell) {
  *bell = -1;
  errno = EOPNOTSUPP;
  return -1;
}

// Table::configure and the others behind it: the devices of the system have options of their own.
int not_configurable(const DeviceOptions& /*options*/, std::string& why) {
  why = "the devices of the system are configured by the system";
  return EOPNOTSUPP;
}
ibv_context* not_openable(const DeviceOptions& options, std::string& why) {
  errno = not_configurable(options, why);
  return nullptr;
}

// Table::start_capture and the others behind it.
int not_captured(ibv_context* /*context*/, CaptureTarget& /*target*/,
                 std::shared_ptr<void>& /*capture*/, std::string& why) {
  why =
      "only the embedded device writes captures; capture the network interface of this one, as "
      "tcpdump and `weft dissect` do";
  return EOPNOTSUPP;
}
int no_capture(ibv_context* /*context*/, const std::shared_ptr<void>& /*capture*/) {
  return EOPNOTSUPP;
}
int no_capture_counts(ibv_context* /*context*/, const std::shared_ptr<void>& /*capture*/,
                      CaptureCounts& /*counts*/) {
  return EOPNOTSUPP;
}

// Table::adopt: a hardware adapter cannot take over a TCP connection.
int refuse_connection(rdma_cm_id* /*listener*/, int connection) {
  close(connection);
  errno = EOPNOTSUPP;
  return -1;
}

std::string place_of(void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname ? info.dli_fname : "?";
}

void* load(const char* name, std::string& reason) {
  // Local, so that its symbols do not take the place of those that the program is linked with.
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    reason = std::string("rdma-core cannot be loaded: ") + (why ? why : name) +
             "; on Debian its packages are libibverbs1 and librdmacm1";
    return nullptr;
  }
  void* mark = dlsym(library, drop_in_mark);
  if (!mark) return library;
  reason =
      std::string(name) + " is Weft's drop-in (" + place_of(mark) +
      "), not the system's library; run the program without `weft run` and without its folder in "
      "LD_LIBRARY_PATH";
  // The mark is found before any function is taken, so that no pointer into the library is left.
  dlclose(library);
  return nullptr;
}

// Uses only members that every version of rdma-core has.
bool has_active_port(const Table& table, ibv_context* context) {
  ibv_device_attr attributes{};
  if (table.query_device(context, &attributes) != 0) return false;
  for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr state{};
    auto* plain = reinterpret_cast<_compat_ibv_port_attr*>(&state);
    if (table.query_port(context, static_cast<std::uint8_t>(port), plain) == 0 &&
        state.state == IBV_PORT_ACTIVE) {
      return true;
    }
  }
  return false;
}

// There rdma_cm finds the device by the address.
rdma_event_channel* no_channel_of_device(ibv_context* /*context*/) {
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace

const System& system_provider() {
  static Table table;
  static const System system = [] {
    System made;
    void* verbs = load(verbs_library, made.reason);
    // Both libraries or none: objects of one are passed to the other.
    void* cm = verbs ? load(cm_library, made.reason) : nullptr;
    if (!cm) return made;
    take_verbs(verbs, table);
    take_cm(cm, table);
    // Counters of Weft's own device, which verbs have no calls for.
    leave_out(table.read_qp_counters);
    leave_out(table.read_cq_counters);
    leave_out(table.read_mr_counters);
    leave_out(table.read_device_counters);
    leave_out(table.read_refused_access);
    // Hardware needs no thread of the program to make progress.
    table.wait = ppoll;
    table.is_manual = [] { return false; };
    table.adopt = refuse_connection;
    table.share_memory = keep_memory;
    table.take_shared_memory = no_memory;
    table.configure = not_configurable;
    table.open_configured = not_openable;
    table.explain_no_device = [](std::string& why) { why.clear(); };
    table.start_capture = not_captured;
    table.stop_capture = no_capture;
    table.read_capture = no_capture_counts;
    table.set_log = set_log_function;
    table.create_event_channel_on = no_channel_of_device;
    made.table = &table;
    return made;
  }();
  return system;
}

std::string active_device(const Table& table) {
  int count = 0;
  ibv_device** devices = table.get_device_list(&count);
  std::string found;
  for (int i = 0; devices && i < count && found.empty(); ++i) {
    // The state of a port can be queried only with an open device.
    ibv_context* context = table.open_device(devices[i]);
    if (!context) continue;
    if (has_active_port(table, context)) found = table.get_device_name(devices[i]);
    table.close_device(context);
  }
  if (devices) table.free_device_list(devices);
  return found;
}

}  // namespace weft::provider
