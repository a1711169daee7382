// State that all ids of one Manager share: the device context, the default protection domain, the
// counters, and the lists of ids and channels.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cm/cm.h"
#include "cm/event_channel.h"
#include "cm/shared_ports.h"
#include "device/context.h"
#include "device/queue_pair/xrc_domain.h"
#include "iwarp/handshake.h"

namespace weft::cm {

class Identifier;

struct LiveCounters {
  std::atomic<std::uint64_t> connections_active{0};
  std::atomic<std::uint64_t> connections_passive{0};
  std::atomic<std::uint64_t> revision_1_fallbacks{0};
  std::atomic<std::uint64_t> unacknowledged{0};
  std::atomic<std::uint64_t> addresses_in_use{0};
  std::atomic<std::uint64_t> requests_dropped{0};
};

class Registry {
 public:
  Registry(std::function<device::Context*()> open, const Options& options);

  // Destroys all ids and channels, and what belongs to the device. Afterwards nothing calls back,
  // and the device may be destroyed before this object.
  void close();

  // Opens the device at the first call. Null with errno set where there is none.
  device::Context* context();
  // The context if the device is open already; does not open it.
  [[nodiscard]] device::Context* opened();
  // Only after context() has succeeded.
  [[nodiscard]] const device::Settings& settings() { return context()->device().settings(); }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] LiveCounters& counters() { return counters_; }
  [[nodiscard]] SharedPorts& shared_ports() { return shared_ports_; }
  // The protection domain of ids for which the program names none: rdma_create_qp(3).
  ibv_pd* default_domain();
  // The XRC domain of ids for which the program names none, as a handle of this context, valid
  // until close().
  device::XrcHandle& xrc_domain(ibv_context* context);
  // Prints, once for each registry, that a peer accepts TCP connections without speaking MPA, and
  // what helps if the program there uses the port's number for both.
  void report_no_mpa(const sockaddr_storage& tcp, iwarp::HandshakeFailure failure);
  // Prints, once for each registry, that the peer's program has not answered a connection request
  // yet.
  void report_no_reply(const sockaddr_storage& tcp);
  // Both count, and print a message for the user on stderr, once for each registry.
  void report_unacknowledged(const std::string& peer);
  void report_address_in_use(const sockaddr_storage& tcp);

  void add(const std::shared_ptr<Channel>& channel);
  void remove(Channel* channel);
  void add(const std::shared_ptr<Identifier>& identifier);
  void remove(Identifier* identifier);

  [[nodiscard]] bool has_objects();
  void abandon_after_fork();

 private:
  [[nodiscard]] std::vector<std::shared_ptr<Channel>> take_unread();

  std::function<device::Context*()> open_;
  Options options_;
  LiveCounters counters_;
  SharedPorts shared_ports_;
  std::atomic<bool> reported_unacknowledged_{false};
  std::atomic<bool> reported_address_in_use_{false};
  std::atomic<bool> reported_no_mpa_{false};
  std::atomic<bool> reported_no_reply_{false};

  std::mutex mutex_;
  device::Context* context_ = nullptr;
  std::unique_ptr<device::ProtectionDomain> domain_;
  std::map<ibv_context*, device::XrcHandle> xrc_domains_;  // of one domain
  std::unordered_map<Channel*, std::shared_ptr<Channel>> channels_;
  std::vector<std::shared_ptr<Channel>> still_read_;  // destroyed: see Channel::is_being_read()
  struct Known {
    std::shared_ptr<Identifier> identifier;
    std::uint64_t number;  // in the order of creation
  };
  std::unordered_map<Identifier*, Known> identifiers_;
  std::uint64_t last_number_ = 0;
};

}  // namespace weft::cm
