#include "device/context.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/after_fork.h"
#include "base/fault_handler.h"
#include "base/size.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {
namespace {

// IBV_ACCESS_OPTIONAL_RANGE: devices may ignore these
constexpr unsigned optional_access = 0x3FF00000;
constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

int check_access(unsigned access) {
  // An access that is not known must not be granted silently.
  if ((access & ~(known_access | optional_access)) != 0) return EOPNOTSUPP;
  // ibv_reg_mr(3): remote writes and atomics require local write access.
  const bool others_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (others_write && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  return 0;
}

}  // namespace

// A negative cmd_fd makes calls of the kernel's verbs interface fail: this device has no kernel
// part.
Context::Context(Device& device) : device_(device) {
  ibv_context& context = extended_.context;
  context.device = device.verbs();
  context.cmd_fd = -1;
  context.async_fd = events_.fd();
  context.num_comp_vectors = 1;
  // verbs.h looks for this value before it uses the extended operations behind the context.
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
  extended_.sz = sizeof(verbs_context);
  set_operations(extended_);
  device_.add(this);
  if (!device_.engine().simulated()) HeapMemory::start(device_.settings());
}

Context::~Context() {
  device_.remove(this);
  pthread_mutex_destroy(&extended_.context.mutex);
}

// libibverbs passes the ibv_context in the middle of verbs_context; self_ follows that directly.
Context* Context::of(ibv_context* context) {
  auto* extended = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return *reinterpret_cast<Context**>(extended + sizeof(verbs_context));
}

// Programs read the events from async_fd, whose counter the event queue keeps.
void Context::raise(const ibv_async_event& event) {
  events_.push(event);
}

int Context::next_event(ibv_async_event& event) {
  while (true) {
    if (const int failed = sys::await_token(events_.fd())) return failed;
    if (take_event(event)) return 0;
  }
}

bool Context::take_event(ibv_async_event& event) {
  return events_.take(event, [this](const ibv_async_event& taken) { count_delivered(taken); });
}

// Counts delivered events per object, because destroying an object must wait for its own events
// only.
void Context::count_delivered(const ibv_async_event& event) {
  const std::lock_guard lock(event_mutex_);
  const void* element = event.element.cq;
  const auto known = std::find_if(delivered_.begin(), delivered_.end(),
                                  [&](const Delivered& entry) { return entry.element == element; });
  if (known == delivered_.end()) {
    delivered_.push_back({element, 1});
  } else {
    ++known->count;
  }
}

// ibv_ack_async_event(3). An event that was not delivered is ignored.
void Context::acknowledge(const ibv_async_event& event) {
  {
    const std::lock_guard lock(event_mutex_);
    const void* element = event.element.cq;
    const auto known = std::find_if(delivered_.begin(), delivered_.end(),
                                    [&](const auto& entry) { return entry.element == element; });
    if (known == delivered_.end()) return;
    if (--known->count == 0) delivered_.erase(known);
  }
  event_acknowledged_.notify_all();
}

// Pending events are dropped, delivered ones are awaited: ibv_get_async_event(3) demands an
// acknowledgement before destruction returns.
void Context::settle_events(const void* element) {
  events_.withdraw([&](const ibv_async_event& event) { return event.element.cq == element; });
  std::unique_lock lock(event_mutex_);
  event_acknowledged_.wait(lock, [&] {
    return events_left_ ||
           std::none_of(delivered_.begin(), delivered_.end(),
                        [&](const Delivered& entry) { return entry.element == element; });
  });
}

void Context::leave_events() {
  {
    const std::lock_guard lock(event_mutex_);
    events_left_ = true;
  }
  event_acknowledged_.notify_all();
}

// Numbers are never reused, so a stale number matches no other domain.
ProtectionDomain* Context::allocate_domain() {
  Counted counted(device_.adapter(), Capability::domains);
  auto* domain = new ProtectionDomain;
  domain->counted = std::move(counted);
  domain->pd.context = verbs();
  domain->number = next_domain_.fetch_add(1);
  domain->pd.handle = domain->number;
  sharing_.add(*domain);
  return domain;
}

void Context::release_domain(ProtectionDomain& domain) {
  sharing_.remove(domain);
  delete &domain;
}

ProtectionDomain* Context::import_domain(std::uint32_t handle) {
  if (!sharing_.foreign()) {
    ProtectionDomain* const found = sharing_.find(handle);
    if (!found) errno = EINVAL;
    return found;
  }
  if (!sharing_.foreign()->find(SharedObject::Kind::domain, handle)) {
    errno = EINVAL;
    return nullptr;
  }
  ProtectionDomain* const domain = allocate_domain();
  // Domains that stand for the same one go together, like parent domains.
  domain->number = sharing_.number_for(handle, domain->number);
  return domain;
}

// As libibverbs, an imported region shows no address: the program knows it.
ibv_mr* Context::import_region(ProtectionDomain& domain, std::uint32_t handle) {
  if (!sharing_.foreign()) {
    Region* const found = memory_.find_local(handle);
    const bool right = found && found->domain == domain.number;
    if (!right) errno = EINVAL;
    return right ? &found->mr : nullptr;
  }
  const auto shared = sharing_.foreign()->find(SharedObject::Kind::region, handle);
  if (!shared || !sharing_.foreign()->maps_alike(*shared)) {
    errno = shared ? EOPNOTSUPP : EINVAL;
    return nullptr;
  }
  catch_faults();
  auto region = std::make_unique<Region>();
  region->mr.length = to_size(shared->length_bytes);
  region->access = shared->access;
  region->iova = shared->iova;
  region->base = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(shared->base));
  region->length_bytes = shared->length_bytes;
  return add_region(std::move(region), domain, handle);
}

namespace {

// On-demand regions may cover the whole address space, including memory that is not mapped yet.
int check_region(Adapter& adapter, void* address, std::size_t length_bytes, unsigned access) {
  constexpr unsigned writable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  if (const int failed = check_access(access)) return failed;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0 && !address && length_bytes == SIZE_MAX) return 0;
  if (!adapter.grants(Capability::region_bytes, length_bytes)) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  return check_accessible(address, length_bytes, (access & writable) != 0);
}

}  // namespace

// Only checks that the memory can be accessed: nothing is pinned, because the device copies in this
// process.
ibv_mr* Context::register_memory(ProtectionDomain& domain, void* address, std::size_t length_bytes,
                                 std::uint64_t iova, unsigned access) {
  if (const int failed = check_region(device_.adapter(), address, length_bytes, access)) {
    errno = failed;
    return nullptr;
  }
  // The handler is installed with the first region: before that no registered memory is accessed.
  catch_faults();
  auto region = std::make_unique<Region>();
  region->mr.addr = address;
  region->mr.length = length_bytes;
  region->access = access;
  region->iova = (access & IBV_ACCESS_ZERO_BASED) ? 0 : iova;
  region->base = static_cast<std::byte*>(address);
  region->length_bytes = length_bytes;
  if (!region->on_demand()) region->heap = HeapMemory(address, length_bytes);
  return add_region(std::move(region), domain);
}

// As libibverbs, the region shows the offset in place of an address. Pages on demand need the
// program's own mapping.
ibv_mr* Context::register_file(ProtectionDomain& domain, const FilePart& part, std::uint64_t iova,
                               unsigned access) {
  auto memory = std::make_shared<FileMemory>();
  int failed = check_access(access);
  if (failed == 0 && (access & IBV_ACCESS_ON_DEMAND) != 0) failed = EOPNOTSUPP;
  if (failed == 0 && !device_.adapter().grants(Capability::region_bytes, part.length_bytes)) {
    failed = EINVAL;
  }
  if (failed == 0) failed = memory->open(part.file, part.offset_bytes, part.length_bytes);
  if (failed != 0) {
    errno = failed;
    return nullptr;
  }
  catch_faults();
  auto region = std::make_unique<Region>();
  region->mr.addr = reinterpret_cast<void*>(part.offset_bytes);
  region->mr.length = part.length_bytes;
  region->access = access;
  region->iova = (access & IBV_ACCESS_ZERO_BASED) ? 0 : iova;
  region->base = memory->data();
  region->length_bytes = part.length_bytes;
  region->file = std::move(memory);
  return add_region(std::move(region), domain);
}

// A null region grants no remote access and has no addresses.
ibv_mr* Context::allocate_null_region(ProtectionDomain& domain) {
  auto region = std::make_unique<Region>();
  region->null = &null_memory_;
  region->remote_valid = false;
  ibv_mr* made = add_region(std::move(region), domain);
  if (made) ++objects;
  return made;
}

// Counts as a user of the domain, which therefore cannot be deallocated before the region
// (ibv_dealloc_pd(3)).
ibv_mr* Context::add_region(std::unique_ptr<Region> region, ProtectionDomain& domain,
                            std::optional<std::uint32_t> key) {
  region->mr.context = verbs();
  region->mr.pd = &domain.pd;
  region->domain = domain.number;
  region->counted = Counted::unless_full(device_.adapter(), Capability::regions);
  if (!region->counted || !(key ? memory_.add_foreign(*region, *key) : memory_.add(*region))) {
    errno = key && region->counted ? EEXIST : ENOMEM;
    return nullptr;
  }
  // Kernel drivers number regions themselves; the STag is unique here.
  region->mr.handle = region->mr.lkey;
  region->listed = sharing_.file().show(*region);
  ++domain.users;
  device_.statistics_registry().add(*region);
  return &region.release()->mr;
}

// The region is not in the table during the change. ibv_rereg_mr(3) forbids accesses meanwhile.
// `leaving` keeps windows away until the region is in the table again, as in deregister_memory(): a
// bind that has found the region before fails, or this call returns EBUSY.
int Context::reregister_memory(ibv_mr* mr, const Reregistration& wanted) {
  Region& region = *Region::of(mr);
  const bool moves = (wanted.changes & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned access =
      (wanted.changes & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? wanted.access : region.access;
  void* const address = moves ? wanted.address : mr->addr;
  const std::size_t length_bytes = moves ? wanted.length_bytes : mr->length;
  // Others have no memory of the program.
  const bool has_memory = moves || (!region.holder && !region.null);
  const int failed = has_memory ? check_region(device_.adapter(), address, length_bytes, access)
                                : check_access(access);
  if (failed != 0) return failed;
  // Device memory, null memory and memory of a file have no other place to move to.
  if (region.holder || region.null || (moves && region.file)) return EBUSY;
  region.leaving = true;
  if (region.windows > 0) {
    region.leaving = false;
    return EBUSY;
  }
  sharing_.file().withdraw(region.listed);
  const auto growths = memory_.remove(region);
  await_quiescence(region.base, to_size(region.length_bytes));
  memory_.reclaim(growths);
  region.access = access;
  if (moves) {
    mr->addr = wanted.address;
    region.length_bytes = wanted.length_bytes;
    mr->length = to_size(wanted.length_bytes);
    region.base = static_cast<std::byte*>(wanted.address);
    region.heap = HeapMemory(wanted.address, wanted.length_bytes);
    const auto named = reinterpret_cast<std::uintptr_t>(wanted.address);
    region.iova = (access & IBV_ACCESS_ZERO_BASED) ? 0 : named;
  }
  if ((wanted.changes & IBV_REREG_MR_CHANGE_PD) != 0) {
    // The count moves with the region, so that ibv_dealloc_pd(3) fails for the right domain.
    --ProtectionDomain::of(mr->pd)->users;
    ++wanted.domain->users;
    mr->pd = &wanted.domain->pd;
    region.domain = wanted.domain->number;
  }
  region.leaving = false;
  memory_.restore(region);
  region.listed = sharing_.file().show(region);
  return 0;
}

// Sets `leaving` before it reads the window count; a bind counts itself before it reads `leaving`.
// So either this call returns EBUSY or the bind fails.
int Context::deregister_memory(ibv_mr* mr) {
  Region& leaving = *Region::of(mr);
  leaving.leaving = true;
  if (leaving.windows > 0) {
    leaving.leaving = false;
    return EBUSY;
  }
  const std::unique_ptr<Region> region(&leaving);
  sharing_.file().withdraw(region->listed);
  const auto growths = memory_.remove(*region);
  await_quiescence(region->base, to_size(region->length_bytes));
  memory_.reclaim(growths);
  device_.statistics_registry().remove(*region);
  // The device memory behind the region may be freed from here on.
  if (region->holder) --*region->holder;
  --ProtectionDomain::of(mr->pd)->users;
  return 0;
}

ibv_mw* Context::allocate_window(ProtectionDomain& domain, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
    errno = EINVAL;
    return nullptr;
  }
  if (const int failed = device_.fault_of(faults::Point::allocate_window)) {
    errno = failed;
    return nullptr;
  }
  auto window = std::make_unique<MemoryWindow>(&domain.pd, domain.number, type);
  window->region().counted = Counted::unless_full(device_.adapter(), Capability::windows);
  if (!window->region().counted || !memory_.add(window->region())) {
    errno = ENOMEM;
    return nullptr;
  }
  // The STag becomes the rkey that the program sees; binds change its lowest eight bits.
  window->take_name();
  ++domain.users;
  return window.release()->verbs();
}

// Unbinds first, so that no new access succeeds, and frees the window after the grace period.
int Context::deallocate_window(MemoryWindow& window) {
  const std::unique_ptr<MemoryWindow> gone(&window);
  gone->unbind();
  const auto growths = memory_.remove(gone->region());
  await_quiescence(nullptr, 0);
  memory_.reclaim(growths);
  --ProtectionDomain::of(gone->verbs()->pd)->users;
  return 0;
}

// Takes each queue pair's lock once. A thread that has found the region in the table holds that
// lock while it uses it.
void Context::await_quiescence(const std::byte* base, std::size_t length_bytes) {
  for (const auto& queue_pair : queue_pairs()) queue_pair->forget_memory(base, length_bytes);
}

std::size_t Context::queue_pair_count() {
  const std::lock_guard lock(mutex_);
  return queue_pairs_.size();
}

// Returns a copy, so that the caller can take queue pair locks without holding mutex_.
std::vector<std::shared_ptr<QueuePair>> Context::queue_pairs() {
  const std::lock_guard lock(mutex_);
  return queue_pairs_.objects();
}

void Context::add(const std::shared_ptr<QueuePair>& queue_pair) {
  const std::lock_guard lock(mutex_);
  queue_pairs_.add(queue_pair);
  by_number_.insert_or_assign(queue_pair->verbs()->qp_num, queue_pair);
}

void Context::remove(const QueuePair* queue_pair) {
  const std::lock_guard lock(mutex_);
  queue_pairs_.remove(queue_pair);
  const auto named = by_number_.find(const_cast<QueuePair*>(queue_pair)->verbs()->qp_num);
  // The number may belong to a newer queue pair already.
  if (named != by_number_.end() && named->second.get() == queue_pair) by_number_.erase(named);
}

std::shared_ptr<QueuePair> Context::find_queue_pair(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

void Context::abandon_after_fork() {
  events_.abandon_after_fork();
  memory_.abandon_after_fork();
  sharing_.file().abandon();
  walk_after_fork(mutex_, [this] {
    for (const auto& queue_pair : queue_pairs_) queue_pair->abandon_after_fork();
  });
}

}  // namespace weft::device
