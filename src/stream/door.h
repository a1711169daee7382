// What a Listener is made of.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "stream/endpoint.h"
#include "stream/events.h"
#include "stream/pump.h"
#include "weft/stream/listener.hpp"

namespace weft::stream::detail {

class Door final : public Attendant, public std::enable_shared_from_this<Door> {
 public:
  Door(const Address& address, const Options& options);
  explicit Door(const Options& options);  // for adopt() only
  ~Door() override;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  void listen(int backlog);
  void need_listening();
  void adopt(int connection);
  // The next request that can be answered; those that cannot are refused on the way.
  [[nodiscard]] std::optional<Request> take();
  void attach(std::shared_ptr<Events> queue, std::uint64_t cookie);
  void attend() noexcept override;

  [[nodiscard]] const verbs::Id& id() const { return id_; }
  [[nodiscard]] int fd() const { return events_.fd(); }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  [[nodiscard]] std::optional<Reason> objection(const StreamGreeting& greeting) const;
  void refuse(const verbs::Id& id, Reason reason);

  const Options options_;
  verbs::EventChannel events_;
  verbs::Id id_;
  std::atomic<std::uint64_t> refused_{0};
  std::mutex mutex_;
  bool listening_ = false;
  std::optional<Pump::Token> token_;
  std::shared_ptr<Events> queue_;
  std::uint64_t cookie_ = 0;
};

}  // namespace weft::stream::detail
