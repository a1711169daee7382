// Calls that the device carries out as it is, unless their object is destroyed.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "check/hooks.h"

namespace weft::check {
namespace {

// A string as an argument of a template.
template <std::size_t size>
struct Name {
  char text[size]{};

  constexpr Name(const char (&given)[size]) { std::copy_n(given, size, text); }
};

template <auto member>
struct Device;

template <typename Function, Function provider::Table::*member>
struct Device<member> {
  static Function function() { return table_below().*member; }
};

template <typename Function, Function verbs_context::*member>
struct Device<member> {
  static Function function() { return checker().below.extended.*member; }
};

// `refused` is what the call returns for a destroyed object, beside EINVAL in errno.
template <auto member, Name name, int refused>
struct Use;

template <typename Owner, typename R, typename Used, typename... Others,
          R (*Owner::*member)(Used*, Others...), Name name, int refused>
struct Use<member, name, refused> {
  static R call(Used* object, Others... others) {
    Call call(name.text);
    if (!call.may_use(object)) return errno = EINVAL, static_cast<R>(refused);
    return Device<member>::function()(object, others...);
  }
};

// Operations that the device does not have stay null, for which verbs.h fails.
template <auto member, Name name, int refused, typename Owner>
void hook(Owner& owner) {
  if (owner.*member) owner.*member = Use<member, name, refused>::call;
}

void hook_contexts(provider::Table& table) {
  using provider::Table;
  hook<&Table::query_device, "ibv_query_device", EINVAL>(table);
  hook<&Table::query_port, "ibv_query_port", EINVAL>(table);
  hook<&Table::query_gid, "ibv_query_gid", -1>(table);
  hook<&Table::query_gid_ex, "ibv_query_gid_ex", EINVAL>(table);
  hook<&Table::query_gid_table, "ibv_query_gid_table", -EINVAL>(table);
  hook<&Table::query_gid_type, "ibv_query_gid_type", -1>(table);
  hook<&Table::query_pkey, "ibv_query_pkey", -1>(table);
  hook<&Table::get_pkey_index, "ibv_get_pkey_index", -1>(table);
  hook<&Table::init_ah_from_wc, "ibv_init_ah_from_wc", EINVAL>(table);
  hook<&Table::resolve_eth_l2_from_gid, "ibv_resolve_eth_l2_from_gid", EINVAL>(table);
}

void hook_queues_in_use(provider::Table& table) {
  using provider::Table;
  hook<&Table::resize_cq, "ibv_resize_cq", EINVAL>(table);
  hook<&Table::modify_srq, "ibv_modify_srq", EINVAL>(table);
  hook<&Table::query_srq, "ibv_query_srq", EINVAL>(table);
  hook<&Table::query_qp, "ibv_query_qp", EINVAL>(table);
  hook<&Table::query_qp_data_in_order, "ibv_query_qp_data_in_order", 0>(table);
  hook<&Table::set_ece, "ibv_set_ece", EINVAL>(table);
  hook<&Table::query_ece, "ibv_query_ece", EINVAL>(table);
  hook<&Table::attach_mcast, "ibv_attach_mcast", EINVAL>(table);
  hook<&Table::detach_mcast, "ibv_detach_mcast", EINVAL>(table);
}

void hook_ids(provider::Table& table) {
  using provider::Table;
  hook<&Table::set_option, "rdma_set_option", -1>(table);
  hook<&Table::get_src_port, "rdma_get_src_port", 0>(table);
  hook<&Table::get_dst_port, "rdma_get_dst_port", 0>(table);
  hook<&Table::resolve_route, "rdma_resolve_route", -1>(table);
  hook<&Table::resolve_addrinfo, "rdma_resolve_addrinfo", -1>(table);
  hook<&Table::query_addrinfo, "rdma_query_addrinfo", -1>(table);
  hook<&Table::write_cm_event, "rdma_write_cm_event", -1>(table);
  hook<&Table::init_qp_attr, "rdma_init_qp_attr", -1>(table);
  hook<&Table::connect, "rdma_connect", -1>(table);
  hook<&Table::establish, "rdma_establish", -1>(table);
  hook<&Table::listen, "rdma_listen", -1>(table);
  hook<&Table::accept, "rdma_accept", -1>(table);
  hook<&Table::reject, "rdma_reject", -1>(table);
  hook<&Table::reject_ece, "rdma_reject_ece", -1>(table);
  hook<&Table::notify, "rdma_notify", -1>(table);
  hook<&Table::disconnect, "rdma_disconnect", -1>(table);
  hook<&Table::join_multicast, "rdma_join_multicast", -1>(table);
  hook<&Table::join_multicast_ex, "rdma_join_multicast_ex", -1>(table);
  hook<&Table::leave_multicast, "rdma_leave_multicast", -1>(table);
  hook<&Table::set_local_ece, "rdma_set_local_ece", -1>(table);
  hook<&Table::get_remote_ece, "rdma_get_remote_ece", -1>(table);
}

}  // namespace

void hook_uses(provider::Table& table) {
  hook_contexts(table);
  hook_queues_in_use(table);
  hook_ids(table);
}

void hook_uses_of(verbs_context& context) {
  hook<&verbs_context::query_port, "ibv_query_port", EINVAL>(context);
  hook<&verbs_context::query_device_ex, "ibv_query_device_ex", EINVAL>(context);
  hook<&verbs_context::query_rt_values, "ibv_query_rt_values_ex", EINVAL>(context);
  hook<&verbs_context::modify_cq, "ibv_modify_cq", EINVAL>(context);
  hook<&verbs_context::get_srq_num, "ibv_get_srq_num", EINVAL>(context);
  hook<&verbs_context::advise_mr, "ibv_advise_mr", EINVAL>(context);
}

}  // namespace weft::check
