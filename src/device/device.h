// The device weft0, one per process. It owns what its contexts share.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/adapter.h"
#include "device/addresses.h"
#include "device/connect/half_open.h"
#include "device/connect/linger.h"
#include "device/connect/refusals.h"
#include "device/engine.h"
#include "device/faults/device_faults.h"
#include "device/faults/device_link.h"
#include "device/local/local_channel.h"
#include "device/local/peer_process.h"
#include "device/local/process_pairs.h"
#include "device/queue_pair/xrc_domain.h"
#include "device/settings.h"
#include "device/statistics_registry.h"
#include "device/tap/device_capture.h"
#include "device/trace/trace_file.h"
#include "wire/control_word.h"

namespace weft::device {

class Context;
class Datagrams;
class PairingRequests;
class QueuePair;
class Slots;

// Thread-safe, except create() and destruction.
class Device {
 public:
  // The error is a sentence with the setting at fault and the next step.
  [[nodiscard]] static Result<std::unique_ptr<Device>, std::string> create(
      const Settings& settings);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] ibv_device* verbs() { return &handle_.device; }
  [[nodiscard]] static Device* of(ibv_device* device) {
    return reinterpret_cast<Handle*>(device)->owner;
  }

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  // Never null. Captures begin and end; see DeviceCapture.
  [[nodiscard]] const std::shared_ptr<DeviceCapture>& capture() const { return capture_; }
  // Null unless the user asked for a trace.
  [[nodiscard]] const std::shared_ptr<TraceFile>& trace() const { return trace_; }
  // In network byte order; derived from the first address, so it is the same in each run.
  [[nodiscard]] std::uint64_t guid_be() const { return guid_be_; }

  // The addresses of the GID table; the position is the GID index. Does not change after creation.
  [[nodiscard]] const std::vector<LocalAddress>& addresses() const { return addresses_; }

  // 0 with errno set if none is free.
  [[nodiscard]] std::uint32_t take_queue_pair_number();
  void give_back_queue_pair_number(std::uint32_t number);
  [[nodiscard]] Datagrams& datagrams() { return *datagrams_; }
  [[nodiscard]] LocalListeners& local_listeners() { return local_listeners_; }
  [[nodiscard]] PeerProcesses& peer_processes() { return peer_processes_; }
  [[nodiscard]] ProcessPairs& process_pairs() { return process_pairs_; }
  [[nodiscard]] XrcDomains& xrc_domains() { return xrc_domains_; }
  // Finds a queue pair of any context; null if there is none.
  [[nodiscard]] std::shared_ptr<QueuePair> find_queue_pair(std::uint32_t number);
  // True for roce and ib: an InfiniBand device, connected by number.
  [[nodiscard]] bool is_roce() const { return settings_.personality != Personality::iwarp; }
  // True where the link layer is InfiniBand as well, so that ports have LIDs (lid.h).
  [[nodiscard]] bool has_lids() const { return settings_.personality == Personality::ib; }
  // As an InfiniBand adapter, where the user asks for it (Settings::strict).
  [[nodiscard]] bool is_strict_roce() const { return settings_.strict && is_roce(); }
  // Pieces of memory per request.
  [[nodiscard]] std::uint32_t max_slices() const {
    return static_cast<std::uint32_t>(adapter_.most(Capability::slices));
  }
  // What the device grants, and how much of it is in use.
  [[nodiscard]] Adapter& adapter() { return adapter_; }
  [[nodiscard]] const Adapter& adapter() const { return adapter_; }
  // IBV_ACCESS_* that a queue pair can grant to its peer.
  [[nodiscard]] unsigned grantable_access() const {
    const bool atomics = adapter_.most(Capability::atomics) != 0;
    return atomics ? ~0U : ~static_cast<unsigned>(IBV_ACCESS_REMOTE_ATOMIC);
  }
  // The bytes per connection for Sends that find no receive; 0: none are held.
  [[nodiscard]] std::uint32_t hold_bytes() const { return is_roce() ? settings_.hold_bytes : 0; }
  // Whether connections of rdma_cm may use control words: a peer that knows of them sends as much
  // as agreed, and no more.
  [[nodiscard]] bool offers_words() const { return hold_bytes() >= wire::agreed_hold_bytes; }
  // What peers hold of this process before they are accepted, and how many were turned away.
  [[nodiscard]] HalfOpen& half_open() { return half_open_; }
  [[nodiscard]] RefusedConnections& refused_connections() { return refused_connections_; }
  [[nodiscard]] Refusals& refusals() { return refusals_; }
  [[nodiscard]] PairingRequests& pairing_requests() { return *pairing_requests_; }
  // True for the first call only: SilentInitiator::report() should print a line.
  [[nodiscard]] bool first_silent_initiator() { return !silent_initiator_.test_and_set(); }
  [[nodiscard]] StatisticsRegistry& statistics_registry() { return statistics_registry_; }
  // Null unless the user asked for faults.
  [[nodiscard]] DeviceFaults* faults() const { return faults_.get(); }
  // Null unless the user asked for a slower network.
  [[nodiscard]] DeviceLink* link() const { return link_.get(); }
  // The errno value with which a call is to fail now, or 0.
  [[nodiscard]] int fault_of(faults::Point call) const { return faults_ ? faults_->call(call) : 0; }
  void add(Context* context);
  void remove(Context* context);
  [[nodiscard]] std::size_t contexts();  // that are open
  // The open context whose file this is a descriptor of; null if there is none.
  [[nodiscard]] Context* find_context(int descriptor);
  // Queues an asynchronous event of the device in each of its contexts.
  void raise(const ibv_async_event& event);

  // For the child of fork(): closes all objects that were made before it, without notifying peers.
  void abandon_after_fork();

 private:
  Device(const Settings& settings, std::vector<LocalAddress> addresses,
         std::shared_ptr<CaptureFile> capture, std::shared_ptr<TraceFile> trace);

  // Vendor libraries look at the pointer directly after ibv_device to see whether the device is
  // theirs; so null pointers follow it.
  struct Handle {
    ibv_device device{};
    std::array<void*, 8> behind{};
    Device* owner = nullptr;
  };

  Handle handle_;
  Settings settings_;
  Adapter adapter_;
  std::vector<LocalAddress> addresses_;
  const std::shared_ptr<DeviceCapture> capture_;
  std::shared_ptr<TraceFile> trace_;
  std::uint64_t guid_be_ = 0;
  // Declared before the engine, and so destroyed after it: its thread may use them until the end.
  Refusals refusals_;
  HalfOpen half_open_;
  RefusedConnections refused_connections_;
  std::unique_ptr<PairingRequests> pairing_requests_;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<Datagrams> datagrams_;
  StatisticsRegistry statistics_registry_;
  std::shared_ptr<DeviceFaults> faults_;
  std::unique_ptr<DeviceLink> link_;
  ProcessPairs process_pairs_;
  Engine engine_;
  LocalListeners local_listeners_{refusals_};
  PeerProcesses peer_processes_;
  XrcDomains xrc_domains_;
  std::atomic_flag silent_initiator_;
  std::atomic<std::uint32_t> next_number_;
  std::mutex mutex_;
  std::vector<Context*> contexts_;
};

}  // namespace weft::device
