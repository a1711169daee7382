// Decides when the program takes clients out of the kernel's queue itself, in accept(2): while they
// come one after the other and all are left to the kernel (Protocol::agreed). Such a client then
// costs this library two system calls, and no thread has to be woken for it.
//
// It ends with the first client that speaks something else, and when the program has not accepted
// for a while: then clients are connected ahead again, as with TCP.
#pragma once

#include "interpose/accepted_client.h"

namespace weft::interpose {

// Guarded by the mutex of AcceptQueue.
class DirectAccepting {
 public:
  [[nodiscard]] bool is_on() const { return on_; }
  // A client was taken ahead. True if that suggests to begin.
  [[nodiscard]] bool suggested_by(Protocol protocol) {
    if (protocol == Protocol::unknown) return false;  // it is counted later
    agreed_in_a_row_ = protocol == Protocol::agreed ? agreed_in_a_row_ + 1 : 0;
    return !on_ && agreed_in_a_row_ >= agreed_before_direct;
  }
  // Clients must send something before the kernel's queue has them, as those do that agree: so none
  // is there that would have to be waited for.
  void begin(int kernel) {
    on_ = true;
    accepted_ = false;
    defers_ = defer_silent_clients(kernel);
  }
  void end(int kernel) {
    if (defers_) stop_deferring(kernel);
    on_ = defers_ = false;
    agreed_in_a_row_ = 0;
  }
  void note_accepted() { accepted_ = true; }
  // By the timer. False if the program has accepted none since the last call.
  [[nodiscard]] bool is_used() {
    const bool used = accepted_;
    accepted_ = false;
    return used;
  }

 private:
  static constexpr unsigned agreed_before_direct = 4;

  bool on_ = false;
  bool accepted_ = false;
  bool defers_ = false;  // TCP_DEFER_ACCEPT was set here
  unsigned agreed_in_a_row_ = 0;
};

}  // namespace weft::interpose
