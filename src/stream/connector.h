// Connector: the connection of one stream as rdma_cm sees it. It resolves the peer's address,
// exchanges greetings with the peer (docs/stream-protocol.md), opens the DataChannel, and keeps the
// reason if there is no connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stream/data_channel.h"
#include "stream/greeting_wire.h"
#include "stream/stream_thread.h"
#include "verbs/host_lookup.h"
#include "weft/verbs.hpp"

namespace weft::stream::detail {

// A request to connect that was neither accepted nor rejected yet.
struct PendingRequest {
  PendingRequest(verbs::Id request_id, StreamGreeting peer_greeting,
                 const Options& listener_options)
      : id(std::move(request_id)), greeting(std::move(peer_greeting)), options(listener_options) {}
  verbs::Id id;
  StreamGreeting greeting;
  Options options;
  bool answered = false;
};

// Why a stream could not be connected.
struct ConnectFailure {
  int error = 0;          // an errno; 0: there is no failure
  bool rejected = false;  // by the peer
  struct Report {
    std::string text;
    std::vector<std::byte> private_data;  // of the peer's program, if it has rejected
    ErrorDetail detail{};
  };
  std::unique_ptr<Report> report;  // null: there is no failure

  // Throws Rejected or Error.
  [[noreturn]] void raise() const;
};

// Not thread-safe: the stream's lock covers it.
class Connector {
 public:
  enum class Phase { idle, resolving, connecting, open, over };

  // Only keeps the references; all three belong to the stream.
  Connector(const Options& options, DataChannel& channel, ThreadRegistration& thread)
      : options_(options), channel_(channel), thread_(thread) {
    set_device(options.device);
  }
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Null: no change. The first device is the one that the process shares.
  void set_device(const verbs::Context* device);

  // --- Starting. All throw Error.
  void bind(const Address& local);
  // The caller handles the events that have come at once, and then has the others watched.
  void start(const Address& peer, std::span<const std::byte> private_data,
             std::weak_ptr<IoHandler> handler);
  void watch_events();
  // After the registration with the stream thread was given up. Throws Error.
  void register_again(std::weak_ptr<IoHandler> handler);
  void accept(PendingRequest& request, std::span<const std::byte> private_data,
              std::weak_ptr<IoHandler> handler);

  // --- Events
  // The name of the peer was looked up, and finish_lookup() goes on from there. It throws Error.
  [[nodiscard]] bool is_looked_up() { return lookup_ && lookup_->holds(); }
  void finish_lookup();
  // The next event that has arrived; never waits.
  [[nodiscard]] std::optional<verbs::ConnectionEvent> next_event();
  // For all events but the loss of the connection. Throws Error where the next step fails.
  void handle(const verbs::ConnectionEvent& event);

  // Something of the peer has arrived, so the connection is established: the accepting side need
  // not wait for the event. Returns whether that is new.
  bool note_arrival();

  // --- The end
  // Ends the attempt to connect; no effect if none is in progress.
  void fail(int error, const std::string& text, ErrorDetail detail = {});
  // Disconnects once; no effect before there is anything to disconnect. Throws nothing.
  void disconnect();
  void set_over() { phase_ = Phase::over; }
  // In a child of fork(2): the connection is the parent's.
  void give_up_in_child() noexcept;

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool is_connecting() const {
    return phase_ == Phase::resolving || phase_ == Phase::connecting;
  }
  [[nodiscard]] const ConnectFailure& failure() const { return failure_; }
  [[nodiscard]] std::span<const std::byte> peer_private_data() const { return peer_.private_data; }
  // Null before bind(), start() or accept().
  [[nodiscard]] const verbs::Id* id() const { return id_ ? &*id_ : nullptr; }

 private:
  [[nodiscard]] verbs::EventChannel make_channel() const;
  void register_handler(std::weak_ptr<IoHandler> handler);
  void answer(const StreamGreeting& peer, std::span<const std::byte> private_data);
  void open_transport();
  void open_flow(StreamGreeting peer, std::uint8_t variant);
  void request_connection();
  void set_limits() const;
  void established(const verbs::ConnectionEvent& event);
  void rejected(const verbs::ConnectionEvent& event);

  const Options& options_;
  DataChannel& channel_;
  ThreadRegistration& thread_;
  Phase phase_ = Phase::idle;
  ConnectFailure failure_;
  std::optional<verbs::Context> device_;
  std::optional<verbs::EventChannel> events_;
  std::optional<verbs::Id> id_;
  std::vector<std::byte> private_data_;  // to be sent with the request
  // While a name is looked up, which takes a thread of its own.
  std::unique_ptr<verbs::detail::HostLookup> lookup_;
  StreamGreeting peer_;
  bool disconnected_ = false;
};

}  // namespace weft::stream::detail
