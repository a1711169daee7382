// A connection over TCP that is traced, or that rules of faults or a link act on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/queue_pair/stream_carrier.h"

namespace weft::device {

// Does what StreamCarrier does, and after each of its calls looks at what has become of it. The
// others are plain StreamCarriers: so nothing of this costs them a branch.
class ObservedStreamCarrier final : public StreamCarrier {
 public:
  using StreamCarrier::StreamCarrier;
  // The carrier that the connection needs: this one, or a plain one.
  [[nodiscard]] static std::unique_ptr<StreamCarrier> if_needed(QueuePairParts& parts,
                                                                const Driver& driver,
                                                                StreamSocket socket,
                                                                const StreamParameters& parameters,
                                                                bool paired);

  void posted(QueuePairLock& lock) override;
  void advance(QueuePairLock& lock) override;
  void drive(Occasion occasion, QueuePairLock& lock) override;
  void inject(const faults::Action& fault, QueuePairLock& lock) override;

 private:
  bool next_receive(iwarp::ReceiveRequest& request) override;
  void note_peer_access(const iwarp::PeerAccess& access) override;
  [[nodiscard]] bool silenced(std::uint64_t timeout_ns) const override;
  [[nodiscard]] bool end_shaping(std::vector<std::byte>& rest) override;

  // Null: neither a trace, nor rules, nor `weft top`.
  [[nodiscard]] RequestWatch* watch() const;
  void begin_trace();
  void follow();
  void carry_out_faults();
  void follow_link();
  [[nodiscard]] bool stop_with_faults();

  std::uint64_t link_alarm_ns_ = iwarp::Connection::never_ns;  // drive() comes for what is delayed
};

}  // namespace weft::device
