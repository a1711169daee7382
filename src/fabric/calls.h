// The calls that active and passive endpoints have in common, as templates over the class; and the
// function tables with everything else set to unsupported.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "fabric/address.h"
#include "fabric/event_queue.h"
#include "fabric/table_functions.h"

namespace weft::fabric {

// --- fi_endpoint(3)

template <typename Object>
int close_object(fid* handle) {
  delete &object_of<Object>(handle);
  return 0;
}

template <typename Object>
int bind_queue(fid* handle, fid* other, std::uint64_t flags) {
  if (!other || other->fclass != FI_CLASS_EQ || flags != 0) return -FI_EINVAL;
  return object_of<Object>(handle).bind(object_of<EventQueue>(other));
}

template <typename Object>
constexpr fi_ops endpoint_fid_ops(decltype(fi_ops::control) control) {
  return {
      .size = sizeof(fi_ops),
      .close = guarded<close_object<Object>>,
      .bind = guarded<bind_queue<Object>>,
      .control = control,
      .ops_open = unsupported<decltype(fi_ops::ops_open)>,
      .tostr = unsupported<decltype(fi_ops::tostr)>,
      .ops_set = unsupported<decltype(fi_ops::ops_set)>,
  };
}

constexpr fi_ops_ep option_ops(decltype(fi_ops_ep::getopt) get, decltype(fi_ops_ep::setopt) set) {
  return {
      .size = sizeof(fi_ops_ep),
      .cancel = unsupported<decltype(fi_ops_ep::cancel)>,
      .getopt = get,
      .setopt = set,
      .tx_ctx = unsupported<decltype(fi_ops_ep::tx_ctx)>,
      .rx_ctx = unsupported<decltype(fi_ops_ep::rx_ctx)>,
      .rx_size_left = unsupported<decltype(fi_ops_ep::rx_size_left)>,
      .tx_size_left = unsupported<decltype(fi_ops_ep::tx_size_left)>,
  };
}

// --- fi_cm(3)

template <typename Object>
int set_name(fid_t handle, void* address, std::size_t bytes) {
  const auto read = read_address(address, bytes);
  return read ? object_of<Object>(handle).set_address(*read) : -FI_EINVAL;
}

template <typename Object>
int get_name(fid_t handle, void* address, std::size_t* bytes) {
  const auto name = object_of<Object>(handle).address();
  return name ? give_address(*name, address, bytes) : -FI_EADDRNOTAVAIL;
}

// A table with the name calls only; each class sets its other members.
template <typename Object>
constexpr fi_ops_cm name_ops() {
  return {
      .size = sizeof(fi_ops_cm),
      .setname = guarded<set_name<Object>>,
      .getname = guarded<get_name<Object>>,
      .getpeer = unsupported<decltype(fi_ops_cm::getpeer)>,
      .connect = unsupported<decltype(fi_ops_cm::connect)>,
      .listen = unsupported<decltype(fi_ops_cm::listen)>,
      .accept = unsupported<decltype(fi_ops_cm::accept)>,
      .reject = unsupported<decltype(fi_ops_cm::reject)>,
      .shutdown = unsupported<decltype(fi_ops_cm::shutdown)>,
      .join = unsupported<decltype(fi_ops_cm::join)>,
  };
}

}  // namespace weft::fabric
