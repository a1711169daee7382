#include "peers.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "device/addresses.h"

namespace weft::bench {
namespace {

namespace sys = device::sys;

[[noreturn]] void give_up(const char* what) {
  fmt::print(stderr, "weft_bench: {}\n", what);
  std::exit(1);
}

void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);  // ignore a failure: the figures are noisier then
}

std::pair<sys::Descriptor, sys::Descriptor> connected() {
  sockaddr_storage address{};
  if (!device::parse_address("127.0.0.1", address)) give_up("no loopback address");
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const sys::Descriptor listener(sys::socket(AF_INET, SOCK_STREAM, 0));
  if (sys::bind(listener.get(), plain, sizeof(sockaddr_in)) < 0 ||
      sys::listen(listener.get(), 1) < 0) {
    give_up("cannot listen on 127.0.0.1");
  }
  sys::local_address(listener.get(), &address);
  sys::Descriptor active(sys::socket(AF_INET, SOCK_STREAM, 0));
  if (sys::connect(active.get(), plain, sizeof(sockaddr_in)) < 0) give_up("cannot connect");
  sys::Descriptor passive(sys::accept(listener.get(), &address));
  sys::set_nonblocking(active.get());
  device::tune(active.get(), true);
  device::tune(passive.get(), true);
  return {std::move(active), std::move(passive)};
}

}  // namespace

void Lines::send_value(std::uint64_t value) const {
  if (write(control, &value, sizeof value) != sizeof value) give_up("the other process is gone");
}

std::uint64_t Lines::receive_value() const {
  std::uint64_t value = 0;
  if (read(control, &value, sizeof value) != sizeof value) give_up("the other process is gone");
  return value;
}

double run_pair(const std::function<double(Lines)>& parent,
                const std::function<void(Lines)>& child) {
  int control[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0) give_up("cannot make a socket pair");
  auto [active, passive] = connected();
  const pid_t pid = fork();
  if (pid < 0) give_up("cannot fork");
  if (pid == 0) {
    pin(1);
    close(control[0]);
    active.reset();
    child({control[1], std::move(passive), false});
    _exit(0);
  }
  pin(0);
  close(control[1]);
  passive.reset();
  const double result = parent({control[0], std::move(active), true});
  close(control[0]);
  waitpid(pid, nullptr, 0);
  return result;
}

namespace {

std::unique_ptr<device::Device> make_device(bool crc) {
  device::Settings settings;
  settings.crc = crc;
  auto made = device::Device::create(settings);
  if (!made) give_up(made.error().c_str());
  return std::move(*made);
}

}  // namespace

VerbsEnd::VerbsEnd(Lines& lines, bool crc, std::size_t buffer_bytes)
    : device_(make_device(crc)),
      context_(*device_),
      domain_(context_.allocate_domain()),
      queue_(context_, 1024, nullptr, nullptr),
      buffer_(buffer_bytes) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue_.verbs();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {256, 256, 1, 1, 64};
  queue_pair_ = device::QueuePair::create(context_, &domain_->pd, attributes);
  mr_ = context_.register_memory(
      *domain_, buffer_.data(), buffer_.size(), reinterpret_cast<std::uint64_t>(buffer_.data()),
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!queue_pair_ || !mr_) give_up("cannot make a queue pair");
  const device::StreamParameters parameters{.initiator = lines.active,
                                            .crc = crc,
                                            .ird = 17,
                                            .wire_ord = 17,
                                            .ord = 16,
                                            .rtr = iwarp::RtrKind::write,
                                            .receiver_not_ready = {.hold_bytes = 1 << 20}};
  const auto ends = device::TcpEnds::of(lines.stream.get());
  device::StreamSocket socket(std::move(lines.stream), ends, nullptr, lines.active);
  queue_pair_->attach(std::move(socket), parameters, {});
  lines.send_value(reinterpret_cast<std::uint64_t>(buffer_.data()));
  lines.send_value(mr_->rkey);
  remote_address_ = lines.receive_value();
  remote_rkey_ = static_cast<std::uint32_t>(lines.receive_value());
}

VerbsEnd::~VerbsEnd() {
  queue_pair_->destroy();
  context_.deregister_memory(mr_);
}

void VerbsEnd::post_receive(std::size_t bytes) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(buffer_.data()), static_cast<std::uint32_t>(bytes),
              mr_->lkey};
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.sg_list = &sge;
  request.num_sge = 1;
  if (ibv_post_recv(queue_pair_->verbs(), &request, &bad) != 0) give_up("cannot post a receive");
}

void VerbsEnd::post(ibv_wr_opcode opcode, std::size_t bytes, int count, bool signaled,
                    std::size_t from, std::size_t to) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(buffer_.data()) + from,
              static_cast<std::uint32_t>(bytes), mr_->lkey};
  std::vector<ibv_send_wr> requests(static_cast<std::size_t>(count));
  for (auto& request : requests) {
    request.next = &request == &requests.back() ? nullptr : &request + 1;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.wr.rdma = {remote_address_ + to, remote_rkey_};
  }
  if (signaled) requests.back().send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(queue_pair_->verbs(), requests.data(), &bad) != 0) give_up("cannot post");
}

int VerbsEnd::poll() {
  ibv_wc completions[32];
  const int got = ibv_poll_cq(queue_.verbs(), 32, completions);
  for (int i = 0; i < got; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) {
      give_up(fmt::format("a request failed with status {}", +completions[i].status).c_str());
    }
    ++(completions[i].opcode & IBV_WC_RECV ? receives : others);
  }
  return got;
}

void VerbsEnd::await(ibv_wc_opcode opcode) {
  int& count = opcode & IBV_WC_RECV ? receives : others;
  while (count == 0) poll();
  --count;
}

}  // namespace weft::bench
