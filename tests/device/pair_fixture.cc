#include "device/pair_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "device/addresses.h"
#include "support/refuse.h"

namespace weft::device {

Buffer::Buffer(Context& context, ProtectionDomain& domain, std::size_t bytes, unsigned access)
    : context_(context), bytes_(bytes) {
  mr_ = context.register_memory(domain, bytes_.data(), bytes_.size(), address(), access);
  EXPECT_NE(mr_, nullptr);
}

Buffer::~Buffer() {
  deregister();
}

void Buffer::deregister() {
  if (mr_) context_.deregister_memory(mr_);
  mr_ = nullptr;
}

ibv_sge Buffer::sge(std::size_t offset, std::size_t length) const {
  return {address() + offset, static_cast<std::uint32_t>(length), mr_->lkey};
}

// Programs watch memory and then use it, as tests do by these two. ThreadSanitizer does not know
// that the connection has ordered the accesses.
__attribute__((no_sanitize("thread"))) void Buffer::fill(std::uint8_t seed) {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    bytes_[i] = static_cast<std::uint8_t>(seed + i * 7 + (i >> 8));
  }
}

__attribute__((no_sanitize("thread"))) bool Buffer::holds(std::uint8_t seed, std::size_t from,
                                                          std::size_t to) const {
  for (std::size_t i = from; i < to; ++i) {
    if (bytes_[i] != static_cast<std::uint8_t>(seed + i * 7 + (i >> 8))) return false;
  }
  return true;
}

End::End(Device& device, const EndOptions& options)
    : context(device),
      domain(context.allocate_domain()),
      channel(options.channel ? CompletionChannel::make(context.verbs()) : nullptr),
      queue(context, options.completions, nullptr, channel.get()) {
  if (options.shared_receives) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {options.receive_requests, options.slices, 0};
    shared = std::make_unique<SharedReceiveQueue>(context, &domain->pd, attributes);
  }
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue.verbs();
  attributes.srq = shared ? shared->verbs() : nullptr;
  attributes.qp_type = options.type;
  attributes.sq_sig_all = options.signal_all ? 1 : 0;
  attributes.cap = {options.send_requests, options.receive_requests, options.slices, options.slices,
                    options.inline_bytes};
  queue_pair = QueuePair::create(context, &domain->pd, attributes);
  EXPECT_NE(queue_pair, nullptr);
}

End::~End() {
  if (queue_pair) queue_pair->destroy();
  queue_pair.reset();
  shared.reset();
  EXPECT_EQ(domain->users, 0) << "memory was not deregistered before its end went away";
  delete domain;
}

std::unique_ptr<Buffer> End::buffer(std::size_t bytes, unsigned access) {
  return std::make_unique<Buffer>(context, *domain, bytes, access);
}

int End::post_receive(std::uint64_t wr_id, std::vector<ibv_sge> slices) {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.wr_id = wr_id;
  request.sg_list = slices.data();
  request.num_sge = static_cast<int>(slices.size());
  if (shared) return ibv_post_srq_recv(shared->verbs(), &request, &bad);
  return ibv_post_recv(queue_pair->verbs(), &request, &bad);
}

int End::post(ibv_send_wr request, std::vector<ibv_sge> slices) {
  ibv_send_wr* bad = nullptr;
  request.sg_list = slices.data();
  request.num_sge = static_cast<int>(slices.size());
  return ibv_post_send(queue_pair->verbs(), &request, &bad);
}

int End::send(std::uint64_t wr_id, std::vector<ibv_sge> slices, unsigned flags) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = flags;
  return post(request, std::move(slices));
}

int End::write(std::uint64_t wr_id, std::vector<ibv_sge> slices, std::uint64_t address,
               std::uint32_t rkey, unsigned flags) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = flags;
  request.wr.rdma = {address, rkey};
  return post(request, std::move(slices));
}

int End::read(std::uint64_t wr_id, std::vector<ibv_sge> slices, std::uint64_t address,
              std::uint32_t rkey) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {address, rkey};
  return post(request, std::move(slices));
}

ibv_wc End::await() {
  ibv_wc completion{};
  // On a busy machine two ends that dial each other may need long to find each other.
  const std::uint64_t deadline = sys::now_ns() + 60'000'000'000U;
  while (ibv_poll_cq(queue.verbs(), 1, &completion) == 0) {
    if (sys::now_ns() > deadline) {
      ADD_FAILURE() << "no completion within a minute";
      completion.status = IBV_WC_GENERAL_ERR;
      break;
    }
  }
  return completion;
}

std::optional<ibv_wc> End::look() {
  ibv_wc completion{};
  if (ibv_poll_cq(queue.verbs(), 1, &completion) == 0) return std::nullopt;
  return completion;
}

namespace {

std::string_view carrier_of_run() {
  const char* value = std::getenv("WEFT_TEST_CARRIER");
  return value ? value : "";
}

std::unique_ptr<Device> make_device(Settings settings) {
  if (settings.same_host != SameHost::staged) set_carrier(settings);
  auto made = Device::create(settings);
  if (!made) throw std::runtime_error(made.error());
  return std::move(*made);
}

}  // namespace

SameHost same_host_of_run() {
  const std::string_view carrier = carrier_of_run();
  if (carrier == "local" || carrier == "within") return SameHost::automatic;
  if (carrier != "staged") return SameHost::off;
  // The threads that this one starts inherit the filter.
  static const bool refused = test::refuse({SYS_process_vm_readv, SYS_process_vm_writev}, EPERM);
  return refused ? SameHost::automatic : SameHost::staged;
}

void set_carrier(Settings& settings) {
  settings.same_host = same_host_of_run();
  settings.reach.own_memory = carrier_of_run() == "within";
}

bool carrier_is_local() {
  return same_host_of_run() != SameHost::off;
}

std::pair<sys::Descriptor, sys::Descriptor> Pair::sockets(LocalListeners& listeners) {
  sockaddr_storage address{};
  EXPECT_TRUE(parse_address("127.0.0.1", address));
  const sys::Descriptor listener(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(sys::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)),
            0);
  EXPECT_EQ(sys::listen(listener.get(), 1), 0);
  sys::local_address(listener.get(), &address);
  listeners.add(listener.get());
  sys::Descriptor active(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(sys::connect(active.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)),
            0);
  sys::Descriptor passive(sys::accept(listener.get(), &address));
  sys::set_nonblocking(active.get());
  tune(active.get(), true);
  tune(passive.get(), true);
  return {std::move(active), std::move(passive)};
}

Pair::Pair(const PairOptions& options)
    : device(make_device(options.settings)), a(*device, options.ends), b(*device, options.ends) {
  connect(*a.queue_pair, *b.queue_pair, options);
}

void Pair::connect(QueuePair& a, QueuePair& b, const PairOptions& options) {
  Device& device = Context::of(a.verbs()->context)->device();
  auto [active, passive] = sockets(device.local_listeners());
  const auto depth = static_cast<std::uint16_t>(options.read_depth + 1);
  StreamParameters parameters{.crc = options.settings.crc,
                              .acknowledge = options.settings.acknowledge,
                              .ird = depth,
                              .wire_ord = depth,
                              .ord = options.read_depth,
                              .rtr = iwarp::RtrKind::write,
                              .receiver_not_ready = {.hold_bytes = options.hold_bytes}};
  constexpr std::uint32_t stags[] = {0xFF000001, 0xFF000002};
  const auto introduce = [&](int self) {
    if (!options.weft_peers) return;
    parameters.control_stag = stags[self];
    parameters.peer = {
        .send_immediate = true, .control_stag = stags[1 - self], .hold_bytes = options.hold_bytes};
  };
  const TcpEnds active_ends = TcpEnds::of(active.get());
  StreamSocket active_socket(std::move(active), active_ends, nullptr, true);
  if (device.settings().same_host != SameHost::off) {
    active_socket.set_channel(LocalChannel::dial(active_socket.ends()));
    EXPECT_TRUE(active_socket.has_channel());
  }
  const TcpEnds passive_ends = TcpEnds::of(passive.get());
  StreamSocket passive_socket(std::move(passive), passive_ends, nullptr, false);
  const auto attach = [&](bool initiator) {
    parameters.initiator = initiator;
    introduce(initiator ? 0 : 1);
    QueuePair& end = initiator ? a : b;
    StreamSocket& socket = initiator ? active_socket : passive_socket;
    EXPECT_EQ(end.attach(std::move(socket), parameters, {}), 0);
  };
  if (options.before_active) {
    attach(false);
    options.before_active();
    attach(true);
  } else {
    attach(true);
    attach(false);
  }
}

}  // namespace weft::device
