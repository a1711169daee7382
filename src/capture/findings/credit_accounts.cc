#include "capture/findings/credit_accounts.h"

#include "capture/findings/credit_wire.h"
#include "wire/ib_transport.h"

namespace weft::capture {
namespace {

constexpr std::uint8_t version = 1;

// Recognises the protocol by the magic number and the version of the greeting.
AnnouncedCredits::Protocol protocol_of(Bytes private_data) {
  using Protocol = AnnouncedCredits::Protocol;
  const auto greeting = CreditGreeting::of(private_data);
  if (greeting.version != version) return Protocol::none;
  if (greeting.magic == CreditGreeting::message_magic) return Protocol::message;
  return greeting.magic == CreditGreeting::stream_magic ? Protocol::stream : Protocol::none;
}

}  // namespace

// --- End to end ----------------------------------------------------------------------------------

void EndToEndCredits::sent(const Stamp& stamp, std::uint32_t psn, bool first, bool last,
                           bool takes_receive) {
  // The list must stay bounded. A message beyond the limit cannot be waiting for a credit.
  if (first) {
    if (open_.size() == most_open) open_.pop_front();
    open_.push_back({psn, last});
  } else if (!open_.empty()) {
    open_.back() = {psn, last};
  }
  // A Write or Read needs no receive, but it changes the number of messages under way.
  if (takes_receive)
    watch_.sent(stamp, none_left());
  else
    watch_.given(stamp, none_left());
}

void EndToEndCredits::given(const Stamp& stamp, const CreditUpdate& update) {
  // Acknowledgements may be captured out of order; an old one must not change the account.
  if (acknowledged_ && wire::psn_distance(*acknowledged_, update.psn) < 0) return;
  acknowledged_ = update.psn;
  credits_ = update.credits;
  // The acknowledgement covers all messages that end at or before its PSN.
  while (!open_.empty() && open_.front().whole &&
         wire::psn_distance(open_.front().psn, update.psn) >= 0) {
    open_.pop_front();
  }
  watch_.given(stamp, none_left());
}

// --- Announced in advance ------------------------------------------------------------------------

AnnouncedCredits::Protocol AnnouncedCredits::protocol_of(const Connection& connection) {
  // Both greetings are needed: a side's credits are in the greeting of its peer.
  if (!connection.offer_a.seen || !connection.offer_b.seen) return Protocol::none;
  const Protocol protocol_a = capture::protocol_of(connection.offer_a.private_data);
  return protocol_a == capture::protocol_of(connection.offer_b.private_data) ? protocol_a
                                                                             : Protocol::none;
}

AnnouncedCredits::AnnouncedCredits(Protocol protocol, Bytes peer)
    : stream_(protocol == Protocol::stream) {
  const auto greeting = CreditGreeting::of(peer);
  receives_ = greeting.receives;
  bytes_ = greeting.ring_bytes;
}

bool AnnouncedCredits::sent(const Stamp& stamp, std::uint32_t bytes) {
  // The account is wrong if the sender used more than it had; the caller stops counting then.
  if (receives_ == 0 || (stream_ && bytes > bytes_)) return false;
  --receives_;
  if (stream_) bytes_ -= bytes;
  watch_.sent(stamp, none_left());
  return true;
}

void AnnouncedCredits::given(const Stamp& stamp, std::uint32_t receives, std::uint32_t bytes) {
  receives_ += receives;
  bytes_ += bytes;
  watch_.given(stamp, none_left());
}

}  // namespace weft::capture
