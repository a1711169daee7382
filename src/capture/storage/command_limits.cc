#include "capture/storage/command_limits.h"

#include <algorithm>
#include <utility>

namespace weft::capture {

// --- NVMe ----------------------------------------------------------------------------------------

// The admin queue always has requests for events without an answer, so nothing follows from it.
void SubmissionQueue::connect(const NvmeQueue& queue, const Stamp& stamp) {
  most_ = queue.number == 0 ? 0 : std::int64_t{queue.entries} - 1;
  usual_ = std::max<std::int64_t>(1, most_ - 1);
  left_.clear();
  left_.set(stamp, usual_);
}

LimitWait SubmissionQueue::sent(const Stamp& stamp, std::size_t open) {
  if (most_ == 0) return {};
  const std::int64_t now = static_cast<std::int64_t>(open) + 1;
  if (now > most_ + 1) {  // Linux of some years ago uses all entries
    lose();
    return {};
  }
  const LimitWait wait = left_.wait_before(stamp, 1);
  if (now > usual_) {
    usual_ = now;
    left_.clear();
  }
  left_.set(stamp, usual_ - now);
  return open == 0 ? LimitWait{} : wait;
}

void SubmissionQueue::answered(const Stamp& stamp, std::size_t open) {
  if (most_ != 0) left_.set(stamp, usual_ - static_cast<std::int64_t>(open));
}

// --- Credits -------------------------------------------------------------------------------------

void Credits::begin(const Stamp& stamp, std::int64_t count) {
  known_ = true;
  left_ = count;
  allowance_.clear();
  allowance_.set(stamp, left_);
}

void Credits::grant(const Stamp& stamp, std::int64_t count) {
  if (!known_) return;
  left_ += count;
  allowance_.set(stamp, left_);
}

LimitWait Credits::use(const Stamp& stamp, std::int64_t used, std::int64_t needed) {
  if (!known_) return {};
  if (used > left_) {
    lose();
    return {};
  }
  const LimitWait wait = allowance_.wait_before(stamp, needed);
  left_ -= used;
  allowance_.set(stamp, left_);
  return wait;
}

// --- SMB -----------------------------------------------------------------------------------------

// The side that asked for the connection has the credits of the response, and grants the other side
// its first ones later (MS-SMBD §3.1.5.6, §3.1.5.7). The last credit is for a transfer that grants
// some itself, because otherwise both sides may be without (§3.1.5.1).
void SmbCredits::on_direct(std::size_t side, const Stamp& stamp, const SmbDirectCredits& message,
                           bool begins) {
  Direct& own = direct_[side];
  Direct& peer = direct_[1 - side];
  if (message.opens) {
    own.credits.begin(stamp, 0);
    return peer.credits.begin(stamp, message.granted);
  }
  const LimitWait wait = own.credits.use(stamp, 1, message.granted > 0 ? 1 : 2);
  peer.credits.grant(stamp, message.granted);
  if (!message.has_data) return;
  if (begins) {
    own.before = wait;
    own.within = {};
  } else {
    own.within.to_ns += wait.ns();
    own.within.frame = std::max(own.within.frame, wait.frame);
  }
}

LimitWait SmbCredits::take_transfers(std::size_t side, LimitWait& within) {
  within = std::exchange(direct_[side].within, {});
  return std::exchange(direct_[side].before, {});
}

// A client begins with one credit (MS-SMB2 §3.2.4.1.2), and a message without a charge uses one.
LimitWait SmbCredits::on_message(const Smb2Message& message, const Stamp& stamp) {
  if (!message.readable) {
    smb2_.lose();
    return {};
  }
  if (!message.message.command) {
    smb2_.grant(stamp, message.credits_granted);
    return {};
  }
  if (message.message.command->name == smb2_negotiate) smb2_.begin(stamp, 1);
  const std::int64_t charge = std::max<std::int64_t>(1, message.credits_charged);
  return smb2_.use(stamp, charge, charge);
}

void SmbCredits::lose() {
  for (Direct& one : direct_) one.credits.lose();
  smb2_.lose();
}

}  // namespace weft::capture
