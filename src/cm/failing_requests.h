// Connection requests at a listener that the rules of faults reject, delay or leave unanswered.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device/connect/inbound_handshake.h"
#include "device/delayed_call.h"
#include "faults/rules.h"

namespace weft::cm {

// Thread-safe. Called without the lock of the id.
class FailingRequests {
 public:
  using Inbound = std::shared_ptr<device::InboundHandshake>;

  // `report` is called later if the request is only delayed. Returns false if the program will
  // never see it.
  bool take(device::Engine& engine, const faults::Action& fault, const Inbound& inbound,
            std::function<void()> report);
  // Closes the requests that were left unanswered. Those that are delayed are not reported.
  void close();
  void abandon_after_fork();

 private:
  std::mutex mutex_;
  std::vector<Inbound> unanswered_;
  std::vector<std::shared_ptr<device::DelayedCall>> delayed_;
};

}  // namespace weft::cm
