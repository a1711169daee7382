#include "device/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/after_fork.h"
#include "base/kernel_random.h"
#include "device/connect/pairing_requests.h"
#include "device/connect/slots.h"
#include "device/context.h"
#include "device/datagram/datagrams.h"
#include "device/gid_table.h"
#include "device/lid.h"
#include "device/local/remote_copy.h"

namespace weft::device {
namespace {

// For iWARP, where the number has no meaning on the wire. Small numbers and the highest ones are
// special on InfiniBand, so none is used.
constexpr std::uint32_t first_queue_pair_number = 0x10;
constexpr std::uint32_t queue_pair_numbers = 0xFFFFF0 - first_queue_pair_number;

// Derived from the address, so that it stays the same from run to run and differs between hosts.
std::uint64_t make_guid(const std::vector<LocalAddress>& addresses) {
  // A locally administered EUI-64 that contains the bytes of the first address.
  std::uint64_t guid = 0;
  std::array<unsigned char, 8> bytes{};
  std::copy(guid_begin.begin(), guid_begin.end(), bytes.begin());
  if (!addresses.empty()) {
    const ibv_gid gid = gid_of(addresses.front().address);
    std::copy(gid.raw + 12, gid.raw + 16, bytes.begin() + 4);
  }
  std::memcpy(&guid, bytes.data(), sizeof guid);
  return guid;
}

// Keeps one address in the personalities roce and ib, because programs may not be able to choose
// between several: by default the first IPv4 address that other hosts can reach. In ib it is always
// one, because a port has one LID.
void choose_gids(const Settings& settings, std::vector<LocalAddress>& addresses) {
  const bool roce = settings.personality == Personality::roce;
  const bool one = settings.gids == GidTable::one || settings.personality == Personality::ib ||
                   (settings.gids == GidTable::standard && roce);
  if (!one || addresses.empty()) return;
  auto chosen = std::find_if(addresses.begin(), addresses.end(), [](const LocalAddress& local) {
    return local.address.ss_family == AF_INET;  // loopback addresses are last
  });
  if (chosen == addresses.end()) chosen = addresses.begin();
  addresses = {*chosen};
}

// The addresses by which the device can be reached, at least one.
Result<std::vector<LocalAddress>, std::string> own_addresses(const Settings& settings) {
  auto addresses = local_addresses();
  if (!addresses) return addresses;
  // The user's choice is binding: no other address is used instead.
  if (!settings.address.empty()) {
    sockaddr_storage wanted{};
    if (!parse_address(settings.address, wanted)) {
      return "the device's address (WEFT_ADDR) " + settings.address +
             " is not a numeric IP address; give one of this host's, for example 127.0.0.1";
    }
    std::erase_if(*addresses, [&](const LocalAddress& local) {
      return !same_host_address(local.address, wanted);
    });
    if (addresses->empty()) {
      return "the device's address (WEFT_ADDR) " + settings.address +
             " is not an address of this host; `ip -brief address` lists them";
    }
  }
  if (addresses->empty()) {
    return std::string("no network interface with an address is up; try `ip link set lo up`");
  }
  return addresses;
}

}  // namespace

Result<std::unique_ptr<Device>, std::string> Device::create(const Settings& settings) {
  auto addresses = own_addresses(settings);
  if (!addresses) return addresses.error();
  choose_gids(settings, *addresses);
  if (settings.personality == Personality::ib) {
    if (auto wrong = check_lid(addresses->front()); !wrong.empty()) return wrong;
  }
  std::shared_ptr<CaptureFile> capture;
  if (!settings.capture_path.empty()) {
    auto opened = CaptureFile::open(settings.capture_path);
    if (!opened) return opened.error();
    capture = *opened;
  }
  std::shared_ptr<TraceFile> trace;
  if (!settings.trace_path.empty()) {
    auto opened = TraceFile::open(settings.trace_path);
    if (!opened) return opened.error();
    trace = *opened;
  }
  return std::unique_ptr<Device>(
      new Device(settings, std::move(*addresses), std::move(capture), std::move(trace)));
}

// The names of the nodes below /sys and /dev are those of a kernel device; programs print them or
// pass them on.
Device::Device(const Settings& settings, std::vector<LocalAddress> addresses,
               std::shared_ptr<CaptureFile> capture, std::shared_ptr<TraceFile> trace)
    : settings_(settings),
      adapter_(settings.adapter, settings.strict),
      addresses_(std::move(addresses)),
      capture_(std::make_shared<DeviceCapture>(std::move(capture))),
      trace_(std::move(trace)),
      guid_be_(make_guid(addresses_)),
      half_open_(settings.strangers.half_open),
      refused_connections_(settings.strangers.refused),
      pairing_requests_(std::make_unique<PairingRequests>(*this)),
      slots_(std::make_unique<Slots>(
          *this, [this](const auto& inbound) { pairing_requests_->handle(inbound); })),
      datagrams_(std::make_unique<Datagrams>(*this)),
      statistics_registry_(!settings.stats_path.empty()),
      faults_(settings.faults.list.empty()
                  ? nullptr
                  : std::make_shared<DeviceFaults>(*this, settings.faults, random_word(),
                                                   settings.verbose)),
      link_(settings.link.active() ? std::make_unique<DeviceLink>(settings.link, random_word(),
                                                                  capture_, settings.verbose)
                                   : nullptr),
      process_pairs_(*this),
      // After everything that its thread may call, and therefore destroyed before it.
      engine_(settings.progress.mode,
              {.exact = settings.link.active(), .nice = settings.progress.priority}),
      peer_processes_(
          {.kernel = settings.same_host != SameHost::staged, .own_memory = settings.reach.own()}),
      next_number_(random_word() % queue_pair_numbers) {
  handle_.owner = this;
  ibv_device& device = handle_.device;
  device.node_type = is_roce() ? IBV_NODE_CA : IBV_NODE_RNIC;
  device.transport_type = is_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
  std::snprintf(device.name, sizeof device.name, "weft0");
  std::snprintf(device.dev_name, sizeof device.dev_name, "uverbs0");
  std::snprintf(device.dev_path, sizeof device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
  std::snprintf(device.ibdev_path, sizeof device.ibdev_path, "/sys/class/infiniband/weft0");
}

Device::~Device() = default;

// Events of the device go to every context, as with adapters (ibv_get_async_event(3)).
void Device::raise(const ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  for (Context* context : contexts_) context->raise(event);
}

// Uses all other numbers before it reuses one, so that a late reference to a destroyed queue pair
// does not hit a new one.
std::uint32_t Device::take_queue_pair_number() {
  if (is_roce()) return slots_->take_number();
  return first_queue_pair_number + next_number_.fetch_add(1) % queue_pair_numbers;
}

void Device::give_back_queue_pair_number(std::uint32_t number) {
  if (is_roce()) slots_->give_back(number);
}

// A linear search over the contexts: a process rarely has more than one or two.
std::shared_ptr<QueuePair> Device::find_queue_pair(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  for (Context* context : contexts_) {
    if (auto found = context->find_queue_pair(number)) return found;
  }
  return nullptr;
}

void Device::add(Context* context) {
  {
    const std::lock_guard lock(mutex_);
    contexts_.push_back(context);
  }
  // After the lock is released, because a fault may raise an event at once.
  if (faults_) faults_->context_opened();
}

void Device::remove(Context* context) {
  const std::lock_guard lock(mutex_);
  std::erase(contexts_, context);
}

std::size_t Device::contexts() {
  const std::lock_guard lock(mutex_);
  return contexts_.size();
}

// Waits for no lock: it may be held by a thread that does not exist in the child.
Context* Device::find_context(int descriptor) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(contexts_, [descriptor](Context* context) {
    return context->sharing().file().is_named_by(descriptor);
  });
  return found == contexts_.end() ? nullptr : *found;
}

void Device::abandon_after_fork() {
  engine_.abandon_after_fork();
  process_pairs_.abandon_after_fork();  // before its connections, whose owners follow
  pairing_requests_->abandon_after_fork();
  slots_->abandon_after_fork();
  local_listeners_.abandon_after_fork();
  peer_processes_.abandon_after_fork();
  RemoteCopy::abandon_after_fork();
  datagrams_->abandon_after_fork();
  capture_->forget_after_fork();
  if (trace_) trace_->forget_after_fork();
  walk_after_fork(mutex_, [this] {
    for (Context* context : contexts_) context->abandon_after_fork();
  });
}

}  // namespace weft::device
