#include "fabric/endpoint_calls.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "fabric/calls.h"
#include "fabric/endpoint.h"
#include "fabric/options.h"

namespace weft::fabric {
namespace {

Endpoint& of(fid_ep* endpoint) {
  return static_cast<Endpoint&>(*endpoint);
}

// --- fi_endpoint(3) ------------------------------------------------------------------------------

// FI_GETWAIT returns a descriptor that stays the same for the life of the endpoint.
int control(fid* handle, int command, void* argument) {
  auto& endpoint = object_of<Endpoint>(handle);
  if (command == FI_ENABLE) return endpoint.enable();
  if (command != FI_GETWAIT && command != FI_GETWAITOBJ) return -FI_ENOSYS;
  if (!argument) return -FI_EINVAL;
  if (command == FI_GETWAIT) {
    *static_cast<int*>(argument) = endpoint.fd();
  } else {
    *static_cast<fi_wait_obj*>(argument) = FI_WAIT_FD;
  }
  return 0;
}

int get_option(fid_t handle, int level, int name, void* value, std::size_t* bytes) {
  return object_of<Endpoint>(handle).get_option(level, name, value, bytes);
}

int set_option(fid_t handle, int level, int name, const void* value, std::size_t bytes) {
  return object_of<Endpoint>(handle).set_option(level, name, value, bytes);
}

// --- fi_cm(3) ------------------------------------------------------------------------------------

int get_peer(fid_ep* endpoint, void* address, std::size_t* bytes) {
  const auto peer = of(endpoint).peer_address();
  return peer ? give_address(*peer, address, bytes) : -FI_ENOTCONN;
}

int connect(fid_ep* endpoint, const void* address, const void* data, std::size_t bytes) {
  return of(endpoint).connect(address, connection_data(data, bytes));
}

int accept(fid_ep* endpoint, const void* data, std::size_t bytes) {
  return of(endpoint).accept(connection_data(data, bytes));
}

// fi_cm(3) defines no flags.
int shut_down(fid_ep* endpoint, std::uint64_t flags) {
  return flags == 0 ? of(endpoint).shut_down() : -FI_EINVAL;
}

// --- The tables ----------------------------------------------------------------------------------

constinit fi_ops fid_ops = endpoint_fid_ops<Endpoint>(guarded<control>);

constinit fi_ops_ep endpoint_ops = option_ops(guarded<get_option>, guarded<set_option>);

// An active endpoint does not listen, and rejects nothing: both members stay unsupported.
constinit fi_ops_cm cm_ops = [] {
  fi_ops_cm ops = name_ops<Endpoint>();
  ops.getpeer = guarded<get_peer>;
  ops.connect = guarded<connect>;
  ops.accept = guarded<accept>;
  ops.shutdown = guarded<shut_down>;
  return ops;
}();

// libfabric's inline functions call these tables without a check for null. All calls return
// -FI_ENOSYS.
fi_ops_rma no_rma_ops = {
    .size = sizeof(fi_ops_rma),
    .read = unsupported<decltype(fi_ops_rma::read)>,
    .readv = unsupported<decltype(fi_ops_rma::readv)>,
    .readmsg = unsupported<decltype(fi_ops_rma::readmsg)>,
    .write = unsupported<decltype(fi_ops_rma::write)>,
    .writev = unsupported<decltype(fi_ops_rma::writev)>,
    .writemsg = unsupported<decltype(fi_ops_rma::writemsg)>,
    .inject = unsupported<decltype(fi_ops_rma::inject)>,
    .writedata = unsupported<decltype(fi_ops_rma::writedata)>,
    .injectdata = unsupported<decltype(fi_ops_rma::injectdata)>,
};

fi_ops_tagged no_tagged_ops = {
    .size = sizeof(fi_ops_tagged),
    .recv = unsupported<decltype(fi_ops_tagged::recv)>,
    .recvv = unsupported<decltype(fi_ops_tagged::recvv)>,
    .recvmsg = unsupported<decltype(fi_ops_tagged::recvmsg)>,
    .send = unsupported<decltype(fi_ops_tagged::send)>,
    .sendv = unsupported<decltype(fi_ops_tagged::sendv)>,
    .sendmsg = unsupported<decltype(fi_ops_tagged::sendmsg)>,
    .inject = unsupported<decltype(fi_ops_tagged::inject)>,
    .senddata = unsupported<decltype(fi_ops_tagged::senddata)>,
    .injectdata = unsupported<decltype(fi_ops_tagged::injectdata)>,
};

fi_ops_atomic no_atomic_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = unsupported<decltype(fi_ops_atomic::write)>,
    .writev = unsupported<decltype(fi_ops_atomic::writev)>,
    .writemsg = unsupported<decltype(fi_ops_atomic::writemsg)>,
    .inject = unsupported<decltype(fi_ops_atomic::inject)>,
    .readwrite = unsupported<decltype(fi_ops_atomic::readwrite)>,
    .readwritev = unsupported<decltype(fi_ops_atomic::readwritev)>,
    .readwritemsg = unsupported<decltype(fi_ops_atomic::readwritemsg)>,
    .compwrite = unsupported<decltype(fi_ops_atomic::compwrite)>,
    .compwritev = unsupported<decltype(fi_ops_atomic::compwritev)>,
    .compwritemsg = unsupported<decltype(fi_ops_atomic::compwritemsg)>,
    .writevalid = unsupported<decltype(fi_ops_atomic::writevalid)>,
    .readwritevalid = unsupported<decltype(fi_ops_atomic::readwritevalid)>,
    .compwritevalid = unsupported<decltype(fi_ops_atomic::compwritevalid)>,
};

fi_ops_collective no_collective_ops = {
    .size = sizeof(fi_ops_collective),
    .barrier = unsupported<decltype(fi_ops_collective::barrier)>,
    .broadcast = unsupported<decltype(fi_ops_collective::broadcast)>,
    .alltoall = unsupported<decltype(fi_ops_collective::alltoall)>,
    .allreduce = unsupported<decltype(fi_ops_collective::allreduce)>,
    .allgather = unsupported<decltype(fi_ops_collective::allgather)>,
    .reduce_scatter = unsupported<decltype(fi_ops_collective::reduce_scatter)>,
    .reduce = unsupported<decltype(fi_ops_collective::reduce)>,
    .scatter = unsupported<decltype(fi_ops_collective::scatter)>,
    .gather = unsupported<decltype(fi_ops_collective::gather)>,
    .msg = unsupported<decltype(fi_ops_collective::msg)>,
    .barrier2 = unsupported<decltype(fi_ops_collective::barrier2)>,
};

}  // namespace

// All endpoints share the tables, which never change.
fid_ep handle_of_endpoint(void* context) {
  return {.fid = {FI_CLASS_EP, context, &fid_ops},
          .ops = &endpoint_ops,
          .cm = &cm_ops,
          .msg = &message_ops,
          .rma = &no_rma_ops,
          .tagged = &no_tagged_ops,
          .atomic = &no_atomic_ops,
          .collective = &no_collective_ops};
}

}  // namespace weft::fabric
