// Imported objects: those of this process are the same objects once more, and those of another
// process are objects of their own.
#include "check/hooks.h"

namespace weft::check {
namespace {

bool is_known(const void* object) {
  const std::lock_guard lock(checker().mutex);
  return checker().objects.find(object) != nullptr;
}

void note_foreign(Call& call, const Object& object) {
  const KeptErrno kept;
  call.made(object);
  const std::lock_guard lock(checker().mutex);
  checker().imports.foreign(object.handle);
}

ibv_context* import_device(int descriptor) {
  Call call("ibv_import_device");
  ibv_context* const context = table_below().import_device(descriptor);
  if (!context) return context;
  if (is_known(context)) {
    const std::lock_guard lock(checker().mutex);
    checker().imports.reopened(context);
    return context;
  }
  hook_context(context);
  call.made({.kind = Kind::context, .handle = context});
  return context;
}

ibv_pd* import_pd(ibv_context* context, std::uint32_t handle) {
  Call call("ibv_import_pd");
  if (!call.may_use(context)) return errno = EINVAL, nullptr;
  ibv_pd* const pd = table_below().import_pd(context, handle);
  if (pd && !is_known(pd)) {
    note_foreign(call, {.kind = Kind::domain, .handle = pd, .uses = {context}});
  }
  return pd;
}

// True if the object is not known any more.
bool give_up(Call& call, const void* object) {
  {
    const std::lock_guard lock(checker().mutex);
    if (!checker().imports.unimport(object)) return false;
  }
  call.destroyed(object);
  return true;
}

void unimport_pd(ibv_pd* pd) {
  Call call("ibv_unimport_pd");
  if (!call.may_use(pd)) return;
  give_up(call, pd);
  table_below().unimport_pd(pd);
}

ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) {
  Call call("ibv_import_mr");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mr* const mr = table_below().import_mr(pd, handle);
  if (!mr || is_known(mr)) return mr;
  note_foreign(call, {.kind = Kind::region, .handle = mr, .number = mr->lkey, .uses = {pd}});
  note_unplaced_region(call, *mr, pd);
  return mr;
}

void unimport_mr(ibv_mr* mr) {
  Call call("ibv_unimport_mr");
  if (!call.may_use(mr)) return;
  const std::uint32_t key = mr->lkey;
  const bool gone = give_up(call, mr);
  table_below().unimport_mr(mr);
  if (gone) forget_region(call, key);
}

}  // namespace

void hook_imports(provider::Table& table) {
  table.import_device = import_device;
  table.import_pd = import_pd;
  table.unimport_pd = unimport_pd;
  table.import_mr = import_mr;
  table.unimport_mr = unimport_mr;
}

}  // namespace weft::check
