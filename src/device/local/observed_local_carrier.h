// A connection within one host that is traced.
#pragma once

#include <memory>
#include <utility>

#include "device/local/local_carrier.h"

namespace weft::device {

// Does what LocalCarrier does, and after each of its calls looks at what has become of it. The
// others are plain LocalCarriers: so a trace costs them no branch.
class ObservedLocalCarrier final : public LocalCarrier {
 public:
  using LocalCarrier::LocalCarrier;
  // The carrier that the connection needs: this one, or a plain one.
  template <typename... Arguments>
  [[nodiscard]] static std::unique_ptr<Carrier> if_needed(QueuePairParts& parts,
                                                          Arguments&&... arguments) {
    if (!parts.observation || !parts.observation->watch.has_trace()) {
      return std::make_unique<LocalCarrier>(parts, std::forward<Arguments>(arguments)...);
    }
    parts.observation->watch.connection_began({}, {});
    return std::make_unique<ObservedLocalCarrier>(parts, std::forward<Arguments>(arguments)...);
  }

  int post(const SendRequest& request, QueuePairLock& lock) override;
  void advance(QueuePairLock& lock) override;
  void posted(QueuePairLock& lock) override;
  void drive(Occasion occasion, QueuePairLock& lock) override;
  [[nodiscard]] bool poll_promptly(DirectPoll* /*poll*/, const QueuePairLock& /*lock*/) override {
    return false;
  }
  [[nodiscard]] bool post_promptly(const ibv_send_wr& /*request*/, bool /*signaled*/,
                                   const QueuePairLock& /*lock*/) override {
    return false;
  }
  void disconnect(QueuePairLock& lock) override;
  void flush(QueuePairLock& lock) override;

 private:
  void follow(const QueuePairLock& lock);
};

}  // namespace weft::device
