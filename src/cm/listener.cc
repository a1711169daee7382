#include "cm/listener.h"

#include <cerrno>

#include "cm/depths.h"
#include "cm/identifier.h"
#include "cm/reservation.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

namespace sys = device::sys;

// After the kernel has refused us a descriptor: no use in asking again at once.
constexpr std::uint64_t out_of_descriptors_ns = 50'000'000;

bool out_of_resources(int error) {
  return error == -EMFILE || error == -ENFILE || error == -ENOBUFS || error == -ENOMEM;
}

}  // namespace

Listener::Listener(std::shared_ptr<Registry> registry, device::Context& context,
                   std::weak_ptr<Identifier> owner, sys::Descriptor socket, int tos, int backlog)
    : registry_(std::move(registry)),
      context_(context),
      owner_(std::move(owner)),
      tos_(tos),
      backlog_(static_cast<std::size_t>(backlog)),
      socket_(std::move(socket)) {}

int Listener::start() {
  const std::lock_guard lock(mutex_);
  watch();
  return token_ == 0 ? ENOMEM : 0;
}

void Listener::stop() {
  std::unordered_set<std::shared_ptr<Greeting>> unfinished;
  {
    const std::lock_guard lock(mutex_);
    pause();
    socket_.reset();
    unfinished.swap(greetings_);
  }
  for (const auto& greeting : unfinished) greeting->cancel();
}

void Listener::abandon_after_fork() {
  (void)socket_.release();
  token_ = 0;
  for (const auto& greeting : greetings_) greeting->abandon_after_fork();
}

void Listener::watch() {
  if (token_ != 0 || !socket_.valid()) return;
  token_ = context_.engine().watch(socket_.get(), EPOLLIN, shared_from_this());
}

void Listener::pause() {
  if (token_ != 0) context_.engine().unwatch(token_);
  token_ = 0;
}

bool Listener::has_room() const {
  return requests_ < backlog_ && greetings_.size() < device::limits::max_half_open;
}

void Listener::on_ready(std::uint32_t /*events*/) {
  while (const auto greeting = accept_one()) {
    greeting->start(registry_->options().handshake_timeout_ns);
  }
}

void Listener::on_deadline() {
  const std::lock_guard lock(mutex_);
  if (has_room()) watch();
}

std::shared_ptr<Greeting> Listener::accept_one() {
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return nullptr;
  if (!has_room()) {
    pause();
    return nullptr;
  }
  sockaddr_storage peer{};
  int accepted = sys::accept(socket_.get(), &peer);
  while (accepted == -EINTR || accepted == -ECONNABORTED) {
    accepted = sys::accept(socket_.get(), &peer);
  }
  if (accepted < 0) {
    if (out_of_resources(accepted)) {
      pause();
      context_.engine().call_at(sys::now_ns() + out_of_descriptors_ns, shared_from_this());
    }
    return nullptr;
  }
  sys::Descriptor fd(accepted);
  sockaddr_storage local{};
  sys::local_address(fd.get(), &local);
  device::tune(fd.get(), device::same_host_address(local, peer));
  apply_tos(fd.get(), peer.ss_family, tos_);
  const device::Settings& settings = context_.device().settings();
  const iwarp::HandshakeOptions options{.crc = settings.crc, .max_ird = max_wire_depth};
  // Not make_shared: the engine's alarms remember it for long, and shall not keep its memory.
  const std::shared_ptr<Greeting> greeting(new Greeting(
      context_, device::StreamSocket(std::move(fd), context_.device().capture(), false), options,
      [weak = weak_from_this()](const auto& arrived) {
        if (const auto self = weak.lock()) self->on_requested(arrived);
      },
      [weak = weak_from_this()](const auto& failed) {
        if (const auto self = weak.lock()) self->on_failed(failed);
      }));
  greetings_.insert(greeting);
  return greeting;
}

void Listener::on_requested(const std::shared_ptr<Greeting>& greeting) {
  {
    const std::lock_guard lock(mutex_);
    if (greetings_.erase(greeting) == 0) return;  // stopped meanwhile
    ++requests_;
  }
  const auto owner = owner_.lock();
  if (owner) owner->on_request(greeting);
}

void Listener::on_failed(const std::shared_ptr<Greeting>& greeting) {
  ++registry_->counters().requests_dropped;
  const std::lock_guard lock(mutex_);
  greetings_.erase(greeting);
  if (has_room()) watch();
}

void Listener::request_fetched() {
  const std::lock_guard lock(mutex_);
  --requests_;
  if (has_room()) watch();
}

}  // namespace weft::cm
