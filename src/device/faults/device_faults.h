// The faults that the user of a device has asked for (Settings::faults): which of its calls and
// requests fail, and the events that it raises by itself. A device without rules has none of these.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/engine.h"
#include "device/faults/stream_faults.h"
#include "device/system.h"
#include "faults/plan.h"

namespace weft::device {

class Device;

// What rules of faults know of a connection.
struct ConnectionEnd {
  ibv_gid peer{};  // the address of the other end; zero while there is none
  faults::Side side = faults::Side::none;
};

// Thread-safe. Must be in a std::shared_ptr.
class DeviceFaults : public Pollable, public std::enable_shared_from_this<DeviceFaults> {
 public:
  // `device` outlives this object. `seed` is used if the rules name none; with `verbose` each fault
  // is printed.
  DeviceFaults(Device& device, faults::Rules rules, std::uint64_t seed, bool verbose);

  // A context was opened. The first one starts the clock of the events: before that nothing could
  // receive them.
  void context_opened();

  // The errno value with which a call fails now; 0: it does not fail here.
  [[nodiscard]] int call(faults::Point point);
  // The same for a call that posts to a queue pair.
  [[nodiscard]] int call(faults::Point point, const ibv_qp& qp);
  // What happens to a request that is being posted now, or to its connection.
  [[nodiscard]] std::optional<faults::Action> request(faults::Point point, const ibv_qp& qp,
                                                      const ConnectionEnd& end,
                                                      std::uint64_t bytes);
  // What happens to a connection at this step of connecting. `queue_pair`: its number, 0 where
  // there is none yet.
  [[nodiscard]] std::optional<faults::Action> connecting(faults::Point point,
                                                         const ConnectionEnd& end,
                                                         std::uint32_t queue_pair = 0);
  // The faults of a connection that begins now; null where no rule acts on connections.
  [[nodiscard]] std::unique_ptr<StreamFaults> stream(std::uint32_t queue_pair,
                                                     const ConnectionEnd& end);
  // Happens to the connection of this queue pair as soon as it has one.
  void add_pending(std::uint32_t queue_pair, const faults::Action& action);
  // Keeps a TCP connection that is silent for ever, which its queue pair has given up.
  void keep_silent(sys::Descriptor connection);
  [[nodiscard]] bool names(faults::Point point) const { return plan_.names(point); }

  // An event has taken the port down.
  [[nodiscard]] bool port_down() const { return port_down_; }
  [[nodiscard]] const faults::Plan& plan() const { return plan_; }

  void on_ready(std::uint32_t epoll_events) override;
  // Raises the events that are due.
  void on_deadline() override;

 private:
  Device& device_;
  faults::Plan plan_;
  std::atomic<bool> port_down_{false};
  std::mutex mutex_;
  std::uint64_t started_ns_ = 0;                                  // 0: not yet
  std::vector<faults::Plan::Event> events_;                       // that are still to be raised
  std::map<std::uint32_t, std::vector<faults::Action>> pending_;  // by queue pair
  std::vector<sys::Descriptor> silent_;
};

}  // namespace weft::device
