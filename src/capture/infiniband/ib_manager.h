// The connection manager's messages of a trace: joins REQ, REP, REJ, DREQ and DREP to connections,
// and learns queue pairs of datagrams from SIDR_REP (wire/ib_cm.h).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "capture/infiniband/ib_connection.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/host_address.hpp"
#include "wire/ib_cm.h"

namespace weft::capture {

class IbManager {
 public:
  // When, by which host and to which host a message was sent.
  struct Envelope {
    Stamp stamp;
    HostAddress source;
    HostAddress destination;
  };
  struct Request {
    Envelope envelope;
    wire::CmRequest message;
    Bytes private_data;  // the user's part
  };
  struct Reply {
    Envelope envelope;
    wire::CmReply message;
    Bytes private_data;
  };
  class Events {
   public:
    virtual ~Events() = default;
    // A new connection is requested. From here on the queue pair of `a` and the first PSN of `b`
    // are known.
    virtual IbConnection& on_request(const Request& request) = 0;
    // The connection was accepted: the queue pair of `b` and the first PSN of `a` are known as
    // well.
    virtual void on_established(IbConnection& connection, const Reply& reply) = 0;
    virtual void on_service(const HostAddress& host, std::uint32_t queue_pair) = 0;
  };

  explicit IbManager(Events& events) : events_(events) {}

  // Handles the payload of a datagram to queue pair 1.
  void on_datagram(const Envelope& envelope, Bytes payload);
  // Removes the connection; later messages about it are ignored.
  void forget(const IbConnection& connection) {
    std::erase_if(known_, [&](const Known& known) { return known.connection == &connection; });
  }
  // Returns whether a request from `from` to `to` has had no reply yet.
  [[nodiscard]] bool awaits_reply(const HostAddress& from, const HostAddress& to) const;

 private:
  // Limit on connections that messages are matched with. Above it the oldest is removed; its
  // traffic is still analysed.
  static constexpr std::size_t most_known = 4096;

  struct Known {
    HostAddress active;
    HostAddress passive;
    std::uint32_t active_id = 0;
    std::uint32_t passive_id = 0;
    std::uint32_t queue_pair = 0;    // of the active side
    std::uint32_t starting_psn = 0;  // of the passive side
    std::uint64_t transaction = 0;   // of the REQ
    bool replied = false;
    bool ended = false;
    IbConnection* connection = nullptr;
  };

  // A REP or REJ whose REQ was not captured yet: where packets are captured out of order, it may
  // come after. Ids are not used again within the time in which a REQ is repeated, which is about a
  // minute.
  struct Early {
    Envelope envelope;
    wire::CmAttribute attribute;
    std::vector<std::byte> message;
    std::uint32_t active_id = 0;
  };
  static constexpr std::size_t most_early = 64;
  // How long after a REJ its REQ may be sent again: the REJ may be lost behind the capture.
  static constexpr std::int64_t repeated_ns = 60'000'000'000;
  // How long after a disconnection its REQ may be captured. Both sides had the REP, so it is not
  // sent again, but a network may hold it back.
  static constexpr std::int64_t late_ns = 100'000'000;
  static constexpr std::int64_t early_ns = 60'000'000'000;

  void keep_early(const Envelope& envelope, wire::CmAttribute attribute, Bytes message,
                  std::uint32_t active_id);
  void take_early(const Envelope& envelope, std::uint32_t active_id);
  void on_request(const Envelope& envelope, std::uint64_t transaction, Bytes message);
  [[nodiscard]] static bool is_repeated(const Known& known, const Envelope& envelope,
                                        std::uint64_t transaction, const wire::CmRequest& message);
  void on_reply(const Envelope& envelope, Bytes message);
  void on_reject(const Envelope& envelope, Bytes message);
  void on_pair(const Envelope& envelope, Bytes message, wire::CmAttribute attribute);
  void on_service_reply(const Envelope& envelope, Bytes message);
  // Finds a connection by the communication ids in a message: the sender's own and, if the sender
  // knows it, the receiver's.
  Known* find(const Envelope& envelope, std::uint32_t local_id, std::uint32_t remote_id);

  Events& events_;
  std::deque<Known> known_;
  std::deque<Early> early_;
};

}  // namespace weft::capture
