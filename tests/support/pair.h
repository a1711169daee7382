// Two connections connected back to back over simulated links; a is the initiator. Nothing here
// uses real time: drive() moves a virtual clock from event to event.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "iwarp/connection.h"
#include "iwarp/handshake.h"
#include "support/link.h"
#include "support/memory_host.h"
#include "support/options.h"

namespace weft::test {

struct PairOptions {
  iwarp::Connection::Options a = roomy(true);
  iwarp::Connection::Options b = roomy(false);
  bool handshake = false;
  iwarp::HandshakeOptions active{.ird = 17, .ord = 17, .max_ird = 17};
  iwarp::HandshakeOptions passive{.ird = 17, .ord = 17, .max_ird = 17};
};

// One side: connection, memory, and its outgoing link.
class Endpoint {
 public:
  Endpoint(const iwarp::Connection::Options& options, Link& out) : options_(options), out_(out) {}

  [[nodiscard]] iwarp::Connection& connection() { return *connection_; }
  [[nodiscard]] bool connected() const { return connection_ != nullptr; }
  void connect(const iwarp::Connection::Options& options);
  void start(const iwarp::HandshakeOptions& handshake);
  [[nodiscard]] const iwarp::Handshake* handshake() const;

  // Posts a request; the test fails if it is not accepted.
  void post(iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices = {});
  [[nodiscard]] iwarp::Requester::Posted try_post(
      iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices = {});

  // Posts a receive while the connection runs, as a program does.
  void post_receive(std::uint64_t wr_id, std::initializer_list<iwarp::LocalSlice> slices);

  // The statuses of completed sends, in order, and their wr_ids.
  [[nodiscard]] std::vector<iwarp::Status> send_statuses() const;
  [[nodiscard]] std::vector<std::uint64_t> send_ids() const;

  MemoryHost host;

 private:
  friend class Pair;
  void receive(Bytes bytes);
  void receive_end();
  void tell_time(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t deadline_ns() const;
  [[nodiscard]] Bytes shake_hands(Bytes bytes);
  // Passes pending output to the link. True if there was any.
  bool transmit(std::uint64_t now_ns);
  bool transmit_handshake(std::uint64_t now_ns);
  void finish_handshake();

  iwarp::Connection::Options options_;
  Link& out_;
  std::optional<iwarp::ActiveHandshake> active_;
  std::optional<iwarp::PassiveHandshake> passive_;
  std::unique_ptr<iwarp::Connection> connection_;
  std::uint64_t handshake_bytes_ = 0;
  std::uint64_t now_ns_ = 0;      // as of the last tell_time()
  std::vector<std::byte> early_;  // FPDUs that arrived before the reply was sent
};

class Pair {
 public:
  explicit Pair(const PairOptions& options = {});

  // Runs until nothing is in flight any more.
  void drive();
  // Delivers what is due next; false if nothing is pending.
  bool step();
  // Calls `action` at that time; it counts as in flight until then.
  void at(std::uint64_t time_ns, std::function<void()> action);
  // Sends the pending output, but delivers nothing.
  void transmit();
  [[nodiscard]] std::uint64_t now_ns() const { return now_ns_; }

  Link a_to_b;
  Link b_to_a;
  Endpoint a;
  Endpoint b;

 private:
  static void deliver(Link& link, Endpoint& to, std::uint64_t now_ns);

  [[nodiscard]] std::uint64_t next_ns() const;

  std::uint64_t now_ns_ = 0;
  std::multimap<std::uint64_t, std::function<void()>> actions_;
};

// Two devices that have identified each other as Weft and hold Sends that find no receive.
[[nodiscard]] PairOptions patient_pair(std::size_t hold_bytes, std::uint64_t timer_ns = 0,
                                       std::uint8_t retries = iwarp::rnr_retry_infinite);

}  // namespace weft::test
