// The connection manager's messages of a trace: REQ, REP, REJ, DREQ and DREP are put together, and
// SIDR_REP names queue pairs of datagrams (wire/ib_cm.h).
#pragma once

#include <cstdint>
#include <deque>

#include "capture/infiniband/ib_connection.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/host_address.hpp"
#include "wire/ib_cm.h"

namespace weft::capture {

class IbManager {
 public:
  // Who sent a message to whom.
  struct Envelope {
    Stamp stamp;
    HostAddress source;
    HostAddress destination;
  };
  struct Request {
    Envelope envelope;
    wire::CmRequest message;
    Bytes private_data;  // the user's
  };
  struct Reply {
    Envelope envelope;
    wire::CmReply message;
    Bytes private_data;
  };
  class Events {
   public:
    virtual ~Events() = default;
    // A new connection is asked for. The queue pair of `a` and the first PSN of `b` are known from
    // here on.
    virtual IbConnection& on_request(const Request& request) = 0;
    // The others too.
    virtual void on_established(IbConnection& connection, const Reply& reply) = 0;
    virtual void on_service(const HostAddress& host, std::uint32_t queue_pair) = 0;
  };

  explicit IbManager(Events& events) : events_(events) {}

  // The payload of a datagram to queue pair 1.
  void on_datagram(const Envelope& envelope, Bytes payload);
  // Messages about the connection are nobody's from here on.
  void forget(const IbConnection& connection) {
    std::erase_if(known_, [&](const Known& known) { return known.connection == &connection; });
  }
  // Whether a request from `from` to `to` has had no answer yet.
  [[nodiscard]] bool awaits_reply(const HostAddress& from, const HostAddress& to) const;

 private:
  // Of more at a time the oldest is forgotten; its connection lives on.
  static constexpr std::size_t most_known = 4096;

  struct Known {
    HostAddress active;
    HostAddress passive;
    std::uint32_t active_id = 0;
    std::uint32_t passive_id = 0;
    bool replied = false;
    bool ended = false;
    IbConnection* connection = nullptr;
  };

  void on_request(const Envelope& envelope, Bytes message);
  void on_reply(const Envelope& envelope, Bytes message);
  void on_reject(const Envelope& envelope, Bytes message);
  void on_pair(const Envelope& envelope, Bytes message, wire::CmAttribute attribute);
  void on_service_reply(const Envelope& envelope, Bytes message);
  // By the ids that the sender of a message puts into it: its own and, where it knows it, the
  // receiver's.
  Known* find(const Envelope& envelope, std::uint32_t local_id, std::uint32_t remote_id);

  Events& events_;
  std::deque<Known> known_;
};

}  // namespace weft::capture
