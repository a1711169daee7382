// Two connections wired back to back, a being the initiator, over links that do what a test asks
// for. Nothing here knows real time: drive() moves a virtual clock from event to event.
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

// One side: connection, memory, and the way out.
class Endpoint {
 public:
  Endpoint(const iwarp::Connection::Options& options, Link& out) : options_(options), out_(out) {}

  [[nodiscard]] iwarp::Connection& connection() { return *connection_; }
  [[nodiscard]] bool connected() const { return connection_ != nullptr; }
  void connect(const iwarp::Connection::Options& options);
  void start(const iwarp::HandshakeOptions& handshake);
  [[nodiscard]] const iwarp::Handshake* handshake() const;

  // Posts what must be accepted.
  void post(iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices = {});
  [[nodiscard]] iwarp::Requester::Posted try_post(
      iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices = {});

  // As a program does it while the connection runs.
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
  // Hands what there is to send to the link. True if something went.
  bool transmit(std::uint64_t now_ns);
  bool transmit_handshake(std::uint64_t now_ns);
  void finish_handshake();

  iwarp::Connection::Options options_;
  Link& out_;
  std::optional<iwarp::ActiveHandshake> active_;
  std::optional<iwarp::PassiveHandshake> passive_;
  std::unique_ptr<iwarp::Connection> connection_;
  std::uint64_t handshake_bytes_ = 0;
  std::vector<std::byte> early_;  // FPDUs that arrived before the reply had gone
};

class Pair {
 public:
  explicit Pair(const PairOptions& options = {});

  // Runs until nothing is under way any more.
  void drive();
  // Hands over what is due next; false where nothing is.
  bool step();
  // Calls `action` at a time to come; that counts as being under way.
  void at(std::uint64_t time_ns, std::function<void()> action);
  // Sends what there is to send, and delivers nothing.
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

// Two devices that know each other as Weft and hold Sends that find no receive.
[[nodiscard]] PairOptions patient_pair(std::size_t hold_bytes, std::uint64_t timer_ns = 0,
                                       std::uint8_t retries = iwarp::rnr_retry_infinite);

}  // namespace weft::test
