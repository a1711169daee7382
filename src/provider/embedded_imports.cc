// Objects that another process, or another part of this one, has made: ibv_import_device(3),
// ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3).
#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "device/context.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::Context;
using device::ForeignContext;
using device::ProtectionDomain;

// The context owns the descriptor from then on.
ibv_context* import_device(int descriptor) {
  Process& process = Process::current();
  device::Device* const ours = process.device();
  if (!ours) return nullptr;
  if (Context* const known = ours->find_context(descriptor)) {
    known->sharing().open_again();
    if (descriptor != known->verbs()->cmd_fd) ::close(descriptor);
    return known->verbs();
  }
  auto foreign = ForeignContext::open(descriptor);
  if (!foreign) return nullptr;
  auto made = make_context(*ours);
  made->sharing().import_from(std::move(*foreign));
  ::close(descriptor);
  return made.release()->verbs();
}

ibv_pd* import_pd(ibv_context* verbs, std::uint32_t handle) {
  if (!Process::owns(verbs)) return fail_null(ENODEV);
  Context& context = *Context::of(verbs);
  ProtectionDomain* const domain = context.import_domain(handle);
  if (!domain) return nullptr;
  if (context.sharing().foreign()) ++context.objects;
  return &domain->pd;
}

// Within a process there is one object only, which ibv_dealloc_pd(3) ends.
void unimport_pd(ibv_pd* pd) {
  if (!Process::owns(pd->context)) return;
  Context& context = *Context::of(pd->context);
  ProtectionDomain& domain = *ProtectionDomain::of(pd);
  // One that is in use stays with the context.
  if (!context.sharing().foreign() || domain.users > 0) return;
  context.release_domain(domain);
  --context.objects;
}

// The errno value alone does not name the memory.
void explain(std::uint32_t handle) {
  log_format(LogLevel::warning, "weft0",
             "ibv_import_mr: this process does not have the memory of region 0x%x at the address "
             "that it has in the process that registered it; map the same file (or inherit the "
             "mapping) with MAP_SHARED at that address first",
             handle);
}

ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) {
  if (!Process::owns(pd->context)) return fail_null(ENODEV);
  Context& context = *Context::of(pd->context);
  ibv_mr* const mr = context.import_region(*ProtectionDomain::of(pd), handle);
  if (mr && context.sharing().foreign()) ++context.objects;
  if (!mr && errno == EOPNOTSUPP) {
    explain(handle);
    errno = EOPNOTSUPP;
  }
  return mr;
}

void unimport_mr(ibv_mr* mr) {
  if (!Process::owns(mr->context)) return;
  Context& context = *Context::of(mr->context);
  // One that windows are bound to stays with the context.
  if (context.sharing().foreign() && context.deregister_memory(mr) == 0) --context.objects;
}

// Device memory is memory of one process here.
ibv_dm* import_dm(ibv_context* verbs, std::uint32_t handle) {
  if (!Process::owns(verbs)) return fail_null(ENODEV);
  device::ContextSharing& sharing = Context::of(verbs)->sharing();
  if (sharing.foreign()) return fail_null(EOPNOTSUPP);
  device::DeviceMemory* const memory = sharing.find_memory(handle);
  if (!memory) return fail_null(EINVAL);
  return memory->verbs();
}

void unimport_dm(ibv_dm* /*dm*/) {}

}  // namespace

void parts::imports(Table& table) {
  table.import_device = verbs_call<import_device>;
  table.import_pd = verbs_call<import_pd>;
  table.unimport_pd = verbs_call<unimport_pd>;
  table.import_mr = verbs_call<import_mr>;
  table.unimport_mr = verbs_call<unimport_mr>;
  table.import_dm = verbs_call<import_dm>;
  table.unimport_dm = verbs_call<unimport_dm>;
}

}  // namespace weft::provider
