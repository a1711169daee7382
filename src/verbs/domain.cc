#include "weft/verbs/domain.hpp"
#include "base/system_call.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "base/own_descriptors.h"
#include "verbs/capacity.h"
#include "verbs/failure.h"
#include "verbs/state.h"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/queue_pair_builder.hpp"

namespace weft::verbs {

using detail::check;
using detail::check_pointer;
using detail::fail;

namespace {

// Calls through the provider's table: the inline functions of verbs.h would call the linked C
// library.
ibv_mr* reg(const ProtectionDomain& domain, const detail::DomainState& state,
            std::span<std::byte> memory, Access access) {
  ibv_mr* made = state.context->table.reg_mr(state.raw, memory.data(), memory.size(),
                                             static_cast<int>(access));
  if (made) return made;
  const int why = errno;
  const auto explanation = detail::explain_region(domain.context(), memory.size(), why);
  fail(why, fmt::format("cannot register {} bytes{}", memory.size(), explanation.text),
       explanation.detail);
}

}  // namespace

MemoryRegion::MemoryRegion(std::shared_ptr<detail::MemoryState> state)
    : state_(std::move(state)),
      raw_(state_->raw),
      begin_(state_->begin),
      accessible_bytes_(begin_ ? state_->raw->length : 0),
      address_(state_->address) {}

ProtectionDomain::ProtectionDomain(std::shared_ptr<detail::DomainState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

Context ProtectionDomain::context() const {
  return Context(state_->context);
}

detail::SharedBytes::SharedBytes(std::size_t bytes, Descriptor& file) {
  file.reset(
      own_descriptors::moved_high(memfd_create("weft-region", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  // Without the seal a peer would not map it. By a bare system call: a library that replaces
  // fcntl(2) does not know the descriptor.
  if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      system_call(SYS_fcntl, file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    file.reset();
  }
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        file.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file.get(), 0);
  if (at != MAP_FAILED) bytes_ = {static_cast<std::byte*>(at), bytes};
}

detail::SharedBytes::~SharedBytes() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

// By the descriptor where the device takes it, otherwise as any other memory.
MemoryRegion ProtectionDomain::allocate_shared_bytes(std::size_t count, std::size_t element_bytes,
                                                     Access access) const {
  if (count == 0 || count > std::numeric_limits<std::size_t>::max() / element_bytes) {
    return allocate_bytes(count, element_bytes, access);  // throws
  }
  Descriptor file;
  detail::SharedBytes memory(count * element_bytes, file);
  const std::span<std::byte> bytes = memory.bytes();
  if (bytes.empty()) return allocate_bytes(count, element_bytes, access);
  ibv_mr* made = nullptr;
  if (file.valid()) {
    made = state_->context->table.reg_dmabuf_mr(raw_, 0, bytes.size(),
                                                reinterpret_cast<std::uint64_t>(bytes.data()),
                                                file.get(), static_cast<int>(access));
  }
  if (!made) made = reg(*this, *state_, bytes, access);
  return MemoryRegion(std::make_shared<detail::MemoryState>(state_, made, std::move(memory)));
}

// Checks that the size in bytes does not overflow.
MemoryRegion ProtectionDomain::allocate_bytes(std::size_t count, std::size_t element_bytes,
                                              Access access) const {
  if (count == 0) fail(EINVAL, "cannot allocate a region of no elements");
  if (count > std::numeric_limits<std::size_t>::max() / element_bytes) {
    fail(ENOMEM, fmt::format("cannot allocate {} elements of {} bytes", count, element_bytes));
  }
  // The state owns the bytes together with the region, so they cannot be freed while they are
  // registered.
  std::vector<std::byte> memory(count * element_bytes);
  ibv_mr* made = reg(*this, *state_, memory, access);
  return MemoryRegion(std::make_shared<detail::MemoryState>(state_, made, std::move(memory)));
}

MemoryRegion ProtectionDomain::register_bytes(std::span<std::byte> memory, Access access) const {
  if (memory.empty()) fail(EINVAL, "cannot register a region of no bytes");
  return MemoryRegion(std::make_shared<detail::MemoryState>(
      state_, reg(*this, *state_, memory, access), std::vector<std::byte>()));
}

// The C interface takes a pointer that is not const. Without these rights the device only reads.
MemoryRegion ProtectionDomain::register_const_bytes(std::span<const std::byte> memory,
                                                    Access access) const {
  constexpr unsigned writing =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (static_cast<unsigned>(access) & writing) {
    fail(EINVAL,
         "cannot register const memory for writing: use Access::local_read_only or "
         "Access::remote_read_only");
  }
  return register_bytes({const_cast<std::byte*>(memory.data()), memory.size()}, access);
}

// The region has no memory that the processor can access, so its bytes() are empty.
MemoryRegion ProtectionDomain::register_dmabuf(int fd, std::uint64_t offset_bytes,
                                               std::size_t bytes, std::uint64_t iova,
                                               Access access) const {
  ibv_mr* made = state_->context->table.reg_dmabuf_mr(raw_, offset_bytes, bytes, iova, fd,
                                                      static_cast<int>(access));
  if (!made) {
    const int why = errno;
    fail(why, fmt::format("cannot register {} bytes of a dma-buf on {}", bytes,
                          state_->context->device_name()));
  }
  return MemoryRegion(std::make_shared<detail::MemoryState>(state_, made, iova));
}

void ProtectionDomain::advise(ibv_advise_mr_advice advice, std::span<const LocalSlice> slices,
                              std::uint32_t flags) const {
  // The C interface takes a pointer to entries that are not const, but only reads them. LocalSlice
  // holds one ibv_sge and nothing else.
  auto* list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(slices.data()));
  check(ibv_advise_mr(raw_, advice, flags, list, static_cast<std::uint32_t>(slices.size())),
        "cannot advise the device about memory");
}

SharedReceiveQueue ProtectionDomain::create_shared_receive_queue(
    const SharedReceiveQueueOptions& options) const {
  ibv_srq_init_attr attributes{};
  attributes.attr = {options.receives, options.slices, options.limit};
  ibv_srq* made = state_->context->table.create_srq(raw_, &attributes);
  if (!made) {
    fail(errno, fmt::format("cannot create a shared receive queue of {} receives of {} slices",
                            options.receives, options.slices));
  }
  SharedReceiveQueue queue(std::make_shared<detail::SharedReceiveQueueState>(state_, made));
  // ibv_create_srq(3) ignores the limit, so set it afterwards.
  if (options.limit > 0) queue.set_limit(options.limit);
  return queue;
}

// The address handle is needed for datagrams only; connected queue pairs take the same attributes
// directly.
AddressHandle ProtectionDomain::create_address_handle(const AddressOptions& options) const {
  ibv_ah_attr attributes = to_attributes(options);
  ibv_ah* made = state_->context->table.create_ah(raw_, &attributes);
  if (!made) {
    fail(errno, fmt::format("cannot create an address handle for {}",
                            options.gid ? options.gid->to_string() : "a LID"));
  }
  return AddressHandle(std::make_shared<detail::AddressHandleState>(state_, made));
}

// The first 40 bytes of a receive of a datagram are for the global routing header, which names the
// sender (ibv_create_ah_from_wc(3)).
AddressHandle ProtectionDomain::reply_address(const Completion& received,
                                              std::span<const std::uint8_t, grh_bytes> front,
                                              std::uint8_t port) const {
  ibv_wc completion = received.raw();
  ibv_grh header;
  std::memcpy(&header, front.data(), sizeof header);
  ibv_ah* made = state_->context->table.create_ah_from_wc(raw_, &completion, &header, port);
  if (!made) fail(errno, "cannot create an address handle for the sender of a datagram");
  return AddressHandle(std::make_shared<detail::AddressHandleState>(state_, made));
}

QueuePairBuilder ProtectionDomain::queue_pair(const CompletionQueue& send,
                                              const CompletionQueue& receive, ibv_qp_type type,
                                              std::uint8_t port) const {
  return {state_, send, receive, type, port};
}

AddressHandle::AddressHandle(std::shared_ptr<detail::AddressHandleState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

// Without a GID the address is a LID, which exists on InfiniBand only.
ibv_ah_attr to_attributes(const AddressOptions& options) {
  ibv_ah_attr attributes{};
  attributes.dlid = options.lid;
  attributes.sl = options.service_level;
  attributes.port_num = options.port;
  if (!options.gid) return attributes;
  attributes.is_global = 1;
  attributes.grh.dgid = options.gid->raw();
  attributes.grh.sgid_index = options.gid_index;
  attributes.grh.hop_limit = options.hop_limit;
  attributes.grh.traffic_class = options.traffic_class;
  return attributes;
}

SharedReceiveQueue::SharedReceiveQueue(std::shared_ptr<detail::SharedReceiveQueueState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

// The limit is used once: after the event IBV_EVENT_SRQ_LIMIT_REACHED it must be set again
// (ibv_modify_srq(3)).
void SharedReceiveQueue::set_limit(std::uint32_t limit) const {
  ibv_srq_attr attributes{};
  attributes.srq_limit = limit;
  check(state_->domain->context->table.modify_srq(raw(), &attributes, IBV_SRQ_LIMIT),
        "cannot set the limit of a shared receive queue");
}

void SharedReceiveQueue::resize(std::uint32_t receives) const {
  ibv_srq_attr attributes{};
  attributes.max_wr = receives;
  check(state_->domain->context->table.modify_srq(raw(), &attributes, IBV_SRQ_MAX_WR),
        "cannot resize a shared receive queue");
}

ibv_srq_attr SharedReceiveQueue::query() const {
  ibv_srq_attr attributes{};
  check(state_->domain->context->table.query_srq(raw(), &attributes),
        "cannot query a shared receive queue");
  return attributes;
}

}  // namespace weft::verbs
