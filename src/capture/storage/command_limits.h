// Follows the limits that the requester of a storage connection has to keep, and returns how long
// it waited for them: the entries of NVMe's submission queue, the credits of SMB 2, and the credits
// of SMB Direct, which the responder has as well. See Allowance for what counts as a wait.
//
// A requester that has one command at a time waits for its answer anyway, so a wait counts only if
// others were under way when it ended. Nothing is known, and no wait is returned, without the
// message with which the count begins (NVMe: Connect; SMB: NEGOTIATE; SMB Direct: Negotiate
// Response), after a gap in the capture, and once a message was sent that the count does not allow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "capture/findings/allowance.h"
#include "capture/storage/nvme_wire.h"
#include "capture/storage/smb_wire.h"

namespace weft::capture {

// NVMe. A host has no more commands without an answer than the queue has entries, less one: a queue
// with all of its entries in use would look empty (NVM Express Base 1.4 §4.1). The head of the
// queue in completions is not used: it may be ahead of the completions, but hosts wait for these,
// because they give the identifiers of commands back. Linux leaves one entry to Connect. So the
// queue counts as full with one command less, until the host has shown that it sends that one, too.
class SubmissionQueue {
 public:
  void connect(const NvmeQueue& queue, const Stamp& stamp);
  // A command is sent, while this number of commands have no answer.
  LimitWait sent(const Stamp& stamp, std::size_t open);
  // An answer has left this number of commands without one.
  void answered(const Stamp& stamp, std::size_t open);
  void lose() { most_ = 0; }

 private:
  std::int64_t most_ = 0;   // commands without an answer; 0: unknown
  std::int64_t usual_ = 0;  // as many as the host is known to have at a time
  Allowance left_;
};

// Credits that one side grants to the other one.
class Credits {
 public:
  void begin(const Stamp& stamp, std::int64_t count);
  void grant(const Stamp& stamp, std::int64_t count);
  // A message that uses `used` credits is sent. Its sender waits until it has `needed`.
  LimitWait use(const Stamp& stamp, std::int64_t used, std::int64_t needed);
  void lose() { known_ = false; }

 private:
  bool known_ = false;
  std::int64_t left_ = 0;
  Allowance allowance_;
};

// SMB 2 in SMB Direct. Each transfer of SMB Direct uses a credit, and may be a piece of a message.
class SmbCredits {
 public:
  // A message of SMB Direct is sent. `begins`: it has the first piece of an SMB message.
  void on_direct(std::size_t side, const Stamp& stamp, const SmbDirectCredits& message,
                 bool begins);
  // A chain of SMB 2 messages is whole: returns how it waited for credits of SMB Direct before its
  // first piece, and sets `within` to the sum of the waits before the others.
  LimitWait take_transfers(std::size_t side, LimitWait& within);
  // A message of SMB 2 is sent. Returns how it waited for credits of SMB 2.
  LimitWait on_message(const Smb2Message& message, const Stamp& stamp);
  void lose();

 private:
  struct Direct {
    Credits credits;
    LimitWait before;  // the message that is sent
    LimitWait within;  // as a sum: from 0 to the sum
  };

  std::array<Direct, 2> direct_;  // by the side that uses them
  Credits smb2_;
};

}  // namespace weft::capture
