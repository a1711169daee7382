// Contexts, protection domains and memory: the calls of the table.
#include "check/hooks.h"

namespace weft::check {
namespace {

void note_context(Call& call, ibv_context* context) {
  if (!context) return;
  hook_context(context);
  call.made({.kind = Kind::context, .handle = context});
}

ibv_context* open_device(ibv_device* device) {
  Call call("ibv_open_device");
  ibv_context* const context = table_below().open_device(device);
  note_context(call, context);
  return context;
}

// A device of its own.
ibv_context* open_configured(const DeviceOptions& options, std::string& why) {
  Call call("weft::verbs::open_own_device");
  ibv_context* const context = table_below().open_configured(options, why);
  note_context(call, context);
  return context;
}

// Objects that are left stay live, and are reported when the program ends.
int close_device(ibv_context* context) {
  Call call("ibv_close_device");
  if (!call.may_use(context)) return EINVAL;
  const int failed = table_below().close_device(context);
  if (failed != 0) return failed;
  {
    const std::lock_guard lock(checker().mutex);
    if (checker().imports.stays_open(context)) return 0;
  }
  call.destroyed(context);
  return failed;
}

ibv_pd* alloc_pd(ibv_context* context) {
  Call call("ibv_alloc_pd");
  if (!call.may_use(context)) return errno = EINVAL, nullptr;
  ibv_pd* const pd = table_below().alloc_pd(context);
  if (pd) call.made({.kind = Kind::domain, .handle = pd, .uses = {context}});
  return pd;
}

int dealloc_pd(ibv_pd* pd) {
  Call call("ibv_dealloc_pd");
  if (!call.may_use(pd)) return EINVAL;
  const int failed = table_below().dealloc_pd(pd);
  if (failed == EBUSY) call.refused(pd);
  if (failed != 0) return failed;
  call.destroyed(pd);
  const std::lock_guard lock(checker().mutex);
  checker().parent_domains.remove(pd);
  return failed;
}

}  // namespace

void hook_devices(provider::Table& table) {
  table.open_device = open_device;
  table.open_configured = open_configured;
  table.close_device = close_device;
  table.alloc_pd = alloc_pd;
  table.dealloc_pd = dealloc_pd;
}

}  // namespace weft::check
