// The other process of a test.
#pragma once

#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/host.h"
#include "support/program.h"
#include "weft/stream.hpp"

namespace weft::stream {

// Runs tests/stream/peer.cc, which prints its port first. Killed by the destructor.
class Peer : public test::Program {
 public:
  // Over TCP the requests of this process complete only while the other one runs.
  enum class Carrier { any, tcp };

  explicit Peer(std::vector<std::string> arguments, Carrier carrier = Carrier::any)
      : Peer(std::move(arguments), SameHostOff(carrier == Carrier::tcp)) {}
  ~Peer() { signal(SIGKILL); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] Address address() const { return {test::host(), port_}; }

 private:
  // While it exists, programs that are started stay on TCP.
  class SameHostOff {
   public:
    explicit SameHostOff(bool off) : off_(off) {
      const char* const before = getenv(name);
      was_set_ = before != nullptr;
      if (before) before_ = before;
      if (off_) setenv(name, "off", 1);
    }
    ~SameHostOff() {
      if (off_) was_set_ ? setenv(name, before_.c_str(), 1) : unsetenv(name);
    }
    SameHostOff(const SameHostOff&) = delete;
    SameHostOff& operator=(const SameHostOff&) = delete;

   private:
    static constexpr const char* name = "WEFT_SAME_HOST";
    bool off_;
    bool was_set_ = false;
    std::string before_;
  };

  Peer(std::vector<std::string> arguments, const SameHostOff& /*meanwhile*/)
      : Program(WEFT_STREAM_PEER, std::move(arguments)),
        port_(static_cast<std::uint16_t>(std::atoi(line().c_str()))) {}

  std::uint16_t port_;
};

}  // namespace weft::stream
