#include "verbs/host_lookup.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "base/simulated_kernel.h"
#include "base/thread.h"

namespace weft::verbs::detail {
namespace {

// An address with a zone, as fe80::1%eth0, is numeric as well.
bool is_numeric(const std::string& host) {
  std::array<std::byte, sizeof(in6_addr)> binary{};
  const std::string without_zone = host.substr(0, host.find('%'));
  return host.empty() || inet_pton(AF_INET, host.c_str(), binary.data()) == 1 ||
         inet_pton(AF_INET6, without_zone.c_str(), binary.data()) == 1;
}

}  // namespace

HostLookup::HostLookup(Backend backend, const Address& address) : address_(address) {
  if (is_numeric(address.host)) return;
  shared_ = std::make_shared<Shared>();
  const auto look_up = [shared = shared_, backend, address] {
    try {
      shared->found = numeric_address(backend, address);
    } catch (...) {
      shared->failed = std::current_exception();
    }
    shared->done.raise();
  };
  // There no name is known, which takes no time.
  if (SimulatedKernel::current()) {
    look_up();
    looked_up_ = true;
    return;
  }
  Thread(look_up, Thread::Stack::of_program).detach();
}

Address HostLookup::take() {
  if (!shared_) return address_;
  // A descriptor alone orders nothing between threads.
  if (!shared_->done.raised()) throw std::logic_error("the lookup of a host has not ended");
  if (shared_->failed) std::rethrow_exception(shared_->failed);
  return shared_->found;
}

Task<Address> look_up(Suspension& suspension, Backend backend, Address address) {
  HostLookup lookup(backend, address);
  const Woken woken = co_await until(suspension, lookup);
  check_woken(woken, fmt::format("resolve \"{}\" port {}", address.host, address.port),
              fmt::format("{} port {}", address.host, address.port));
  co_return lookup.take();
}

}  // namespace weft::verbs::detail
