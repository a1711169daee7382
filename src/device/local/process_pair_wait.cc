// A thread of the program waits for an event of the connection manager, and serves the pair
// meanwhile. Of each state that the peer may see, the thread looks at the memory once more behind
// it: either the peer finds the thread awake, or the thread finds what the peer has written.
#include "device/device.h"
#include "device/local/process_pair.h"

namespace weft::device {

bool ProcessPair::begin_wait() {
  return !gone() && !waited_.test_and_set(std::memory_order_acquire);
}

void ProcessPair::look_on() {
  if (!abandoned_) waiting_word().store(Waiting::looks, std::memory_order_seq_cst);
}

// Another thread may read just now. It may be behind its own look, so this one comes again.
void ProcessPair::look() {
  if (gone() || bells(dials_).pending.load(std::memory_order_seq_cst) == 0) return;
  if (!reader_.begin()) return sys::yield();
  bool open = take_new();
  // Another thread has passed its events to this one meanwhile.
  if (const auto events = reader_.take_left(); open && events != 0) open = serve(events);
  end_reading(open);
}

// The peer does not wake the thread for a pair that has ended. If the pair ends while the thread
// sleeps, its connections end too, and their events wake the thread.
bool ProcessPair::begin_sleep() {
  if (!abandoned_) waiting_word().store(Waiting::sleeps, std::memory_order_seq_cst);
  return gone() || bells(dials_).pending.load(std::memory_order_seq_cst) == 0;
}

// A peer that breaks the rules may have written to the word: so the kernel is asked in any case
// whether the thread sleeps.
void ProcessPair::end_sleep() {
  if (abandoned_) return;
  waiting_word().store(Waiting::looks, std::memory_order_seq_cst);
  (void)sys::wake_sleeper(&waiting_word());
}

void ProcessPair::end_wait() {
  if (abandoned_) return;
  waiting_word().store(Waiting::none, std::memory_order_seq_cst);
  waited_.clear(std::memory_order_release);
  if (bells(dials_).pending.load(std::memory_order_seq_cst) != 0) take_left();
}

// What no message announces.
void ProcessPair::take_left() {
  if (gone() || !reader_.begin(EPOLLIN)) return;
  end_reading(take_mail() && take_new());
}

}  // namespace weft::device
