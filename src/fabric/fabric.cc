#include "fabric/fabric.h"

#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#include <string_view>

#include "fabric/endpoint.h"
#include "fabric/event_queue.h"
#include "fabric/info.h"
#include "fabric/passive_endpoint.h"
#include "fabric/table_functions.h"

namespace weft::fabric {
namespace {

// --- Domains -------------------------------------------------------------------------------------

// fi_close fails while endpoints of the domain exist.
int close_domain(fid* handle) {
  auto& domain = object_of<Domain>(handle);
  if (domain.users().any()) return -FI_EBUSY;
  delete &domain;
  return 0;
}

fi_ops domain_fid_ops = {
    .size = sizeof(fi_ops),
    .close = guarded<close_domain>,
    .bind = unsupported<decltype(fi_ops::bind)>,
    .control = unsupported<decltype(fi_ops::control)>,
    .ops_open = unsupported<decltype(fi_ops::ops_open)>,
    .tostr = unsupported<decltype(fi_ops::tostr)>,
    .ops_set = unsupported<decltype(fi_ops::ops_set)>,
};

fi_ops_domain domain_ops = {
    .size = sizeof(fi_ops_domain),
    .av_open = unsupported<decltype(fi_ops_domain::av_open)>,
    .cq_open = unsupported<decltype(fi_ops_domain::cq_open)>,
    .endpoint = guarded<open_endpoint>,
    .scalable_ep = unsupported<decltype(fi_ops_domain::scalable_ep)>,
    .cntr_open = unsupported<decltype(fi_ops_domain::cntr_open)>,
    .poll_open = unsupported<decltype(fi_ops_domain::poll_open)>,
    .stx_ctx = unsupported<decltype(fi_ops_domain::stx_ctx)>,
    .srx_ctx = unsupported<decltype(fi_ops_domain::srx_ctx)>,
    .query_atomic = unsupported<decltype(fi_ops_domain::query_atomic)>,
    .query_collective = unsupported<decltype(fi_ops_domain::query_collective)>,
    .endpoint2 = unsupported<decltype(fi_ops_domain::endpoint2)>,
};

// A transfer is complete when its call returns, so programs have no memory to register.
fi_ops_mr memory_ops = {
    .size = sizeof(fi_ops_mr),
    .reg = unsupported<decltype(fi_ops_mr::reg)>,
    .regv = unsupported<decltype(fi_ops_mr::regv)>,
    .regattr = unsupported<decltype(fi_ops_mr::regattr)>,
};

// The attributes are not read: each fi_info of this provider stands for the same domain.
int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  if (!info || !domain) return -FI_EINVAL;
  *domain = new Domain(static_cast<Fabric&>(*fabric), context);
  return 0;
}

// --- Fabrics -------------------------------------------------------------------------------------

// Its users are domains, event queues and passive endpoints.
int close_fabric(fid* handle) {
  auto& fabric = object_of<Fabric>(handle);
  if (fabric.users().any()) return -FI_EBUSY;
  delete &fabric;
  return 0;
}

// fi_trywait of fi_poll(3): -FI_EAGAIN if the program must read first, because a descriptor is
// readable already.
int try_wait(fid_fabric* /*fabric*/, fid** handles, int count) {
  if (!handles || count <= 0) return -FI_EINVAL;
  for (int i = 0; i < count; ++i) {
    fid* const handle = handles[i];
    if (!handle || (handle->fclass != FI_CLASS_EP && handle->fclass != FI_CLASS_EQ)) {
      return -FI_EINVAL;
    }
    const int fd = handle->fclass == FI_CLASS_EP ? object_of<Endpoint>(handle).fd()
                                                 : object_of<EventQueue>(handle).fd();
    if (is_readable(fd)) return -FI_EAGAIN;
  }
  return 0;
}

fi_ops fabric_fid_ops = {
    .size = sizeof(fi_ops),
    .close = guarded<close_fabric>,
    .bind = unsupported<decltype(fi_ops::bind)>,
    .control = unsupported<decltype(fi_ops::control)>,
    .ops_open = unsupported<decltype(fi_ops::ops_open)>,
    .tostr = unsupported<decltype(fi_ops::tostr)>,
    .ops_set = unsupported<decltype(fi_ops::ops_set)>,
};

fi_ops_fabric fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = guarded<open_domain>,
    .passive_ep = guarded<open_passive_endpoint>,
    .eq_open = guarded<open_event_queue>,
    .wait_open = unsupported<decltype(fi_ops_fabric::wait_open)>,
    .trywait = guarded<try_wait>,
    .domain2 = unsupported<decltype(fi_ops_fabric::domain2)>,
};

}  // namespace

Domain::Domain(Fabric& fabric, void* context)
    : fid_domain{{FI_CLASS_DOMAIN, context, &domain_fid_ops}, &domain_ops, &memory_ops},
      fabric_(fabric),
      use_(fabric.users()) {}

Fabric::Fabric(void* context)
    : fid_fabric{{FI_CLASS_FABRIC, context, &fabric_fid_ops}, &fabric_ops, 0} {}

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  if (!attributes || !fabric) return -FI_EINVAL;
  if (attributes->name && std::string_view(attributes->name) != provider_name) return -FI_ENODATA;
  *fabric = new Fabric(context);
  return 0;
}

}  // namespace weft::fabric

// --- The entry point of the provider -------------------------------------------------------------

// libfabric calls this function after it has loaded the library, and keeps the pointer. It uses the
// member `context` for itself.
extern "C" FI_EXT_INI {
  using namespace weft::fabric;
  static fi_provider provider = {
      .version = FI_VERSION(WEFT_MAJOR, WEFT_MINOR),
      .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
      .context = {},
      .name = provider_name,
      .getinfo = guarded<get_info>,
      .fabric = guarded<open_fabric>,
      .cleanup = [] {},  // the device's threads run until the process ends
  };
  return &provider;
}
