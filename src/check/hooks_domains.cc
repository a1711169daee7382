// Thread domains and parent domains: calls that verbs.h makes through the context.
#include <mutex>
#include <utility>

#include "check/hooks.h"

namespace weft::check {
namespace {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  Call call("ibv_alloc_td");
  if (!call.may_use(context)) return errno = EINVAL, nullptr;
  ibv_td* const td = checker().below.extended.alloc_td(context, attributes);
  if (td) call.made({.kind = Kind::thread_domain, .handle = td, .uses = {context}});
  return td;
}

int dealloc_td(ibv_td* td) {
  Call call("ibv_dealloc_td");
  if (!call.may_use(td)) return EINVAL;
  const int failed = checker().below.extended.dealloc_td(td);
  if (failed == 0) call.destroyed(td);
  if (failed == EBUSY) call.refused(td);
  return failed;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  Call call("ibv_alloc_parent_domain");
  if (!call.may_use(context) || !call.may_use(attributes->pd) || !call.may_use(attributes->td)) {
    return errno = EINVAL, nullptr;
  }
  ibv_pd* const parent = checker().below.extended.alloc_parent_domain(context, attributes);
  if (!parent) return parent;
  Object object{.kind = Kind::domain, .handle = parent, .uses = {attributes->pd}};
  if (attributes->td) object.uses.push_back(attributes->td);
  call.made(std::move(object));
  const std::lock_guard lock(checker().mutex);
  checker().parent_domains.add(parent, attributes->pd);
  return parent;
}

}  // namespace

void hook_domains_of(verbs_context& context) {
  context.alloc_td = alloc_td;
  context.dealloc_td = dealloc_td;
  context.alloc_parent_domain = alloc_parent_domain;
}

}  // namespace weft::check
