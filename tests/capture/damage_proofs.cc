#include "capture/damage_proofs.h"

#include <algorithm>

#include "weft/capture/rpc_findings.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

bool same_ends(const Connection& one, const Connection& other) {
  const auto equal = [](const Endpoint& a, const Endpoint& b) {
    return a.address == b.address && (a.number == b.number || !a.known || !b.known);
  };
  return (equal(one.a, other.a) && equal(one.b, other.b)) ||
         (equal(one.a, other.b) && equal(one.b, other.a));
}

PacketRange range_of(std::uint64_t first_frame, std::uint64_t last_frame) {
  return {static_cast<std::size_t>(first_frame) - 1, static_cast<std::size_t>(last_frame) - 1};
}

}  // namespace

void Reported::add(const Rpc& rpc) {
  Exchange exchange{
      .connection = rpc.connection, .caller = rpc.caller, .xid = rpc.xid, .call = {}, .reply = {}};
  if (rpc.call) exchange.call = {rpc.call->first.frame, rpc.call->last.frame};
  if (rpc.reply) exchange.reply = {rpc.reply->first.frame, rpc.reply->last.frame};
  exchanges.push_back(exchange);
}

bool DamageProofs::is_in_original(const Finding& finding) const {
  const Connection& connection = altered_.connections[finding.connection];
  return std::ranges::any_of(original_.findings, [&](const Finding& one) {
    return one.kind == finding.kind && one.xid == finding.xid &&
           same_ends(original_.connections[one.connection], connection);
  });
}

// The sentences about one side begin with it, or say "of" or "from" it; those about both name both.
std::optional<Side> DamageProofs::side_in(const Finding& finding,
                                          const Connection& connection) const {
  const auto place = [&](Side side) {
    return finding.sentence.find(endpoint_text(connection, side));
  };
  const bool a = place(Side::a) != std::string::npos;
  const bool b = place(Side::b) != std::string::npos;
  if (a == b) return {};
  return a ? Side::a : Side::b;
}

bool DamageProofs::explain(const Finding& finding) const {
  if (is_in_original(finding)) return true;
  const Connection& connection = altered_.connections[finding.connection];
  const auto side = side_in(finding, connection);
  const auto of_named = [&](const auto& holds) {
    return side ? holds(*side) : holds(Side::a) || holds(Side::b);
  };
  if (finding.kind == finding::repeated) {
    return of_named([&](Side one) { return alterations_.repeats(connection, one); });
  }
  if (finding.kind == finding::not_captured) {
    return of_named([&](Side one) { return alterations_.lacks(connection, one); });
  }
  if (finding.kind == finding::one_direction) {
    // Of a short rest of a capture both directions are there, but not joined.
    if (finding.sentence.find("does not show") != std::string::npos) {
      return alterations_.lacks(connection);
    }
    return of_named([&](Side one) { return is_silent(connection, one); });
  }
  if (finding.kind == finding::half_open) {
    return alterations_.lacks_end(connection, Side::a) ||
           alterations_.lacks_end(connection, Side::b);
  }
  if (finding.kind == finding::reset) {
    return std::ranges::any_of(alterations_.sent(), [&](const SentPacket& packet) {
      return packet.rst && (packet.is_of(connection, Side::a) || packet.is_of(connection, Side::b));
    });
  }
  if (finding.kind == finding::unanswered_request) {
    return of_named([&](Side one) { return explain_unanswered(connection, one); });
  }
  if (finding.kind == finding::incomplete || finding.kind == finding::unanswered ||
      finding.kind == finding::without_call) {
    return explain_exchange(finding, connection);
  }
  return false;
}

// Packets name only the receiving queue pair, so that of the silent side may be known from the
// original only.
bool DamageProofs::is_silent(const Connection& connection, Side side) const {
  Connection named = connection;
  Endpoint& receiver = side == Side::a ? named.b : named.a;
  if (receiver.known) return alterations_.silences(connection, side);
  return std::ranges::any_of(original_.connections, [&](const Connection& one) {
    if (!same_ends(one, connection)) return false;
    receiver = one.a.address == receiver.address ? one.a : one.b;
    return alterations_.silences(named, side);
  });
}

// Whatever is wrong with the exchange, its reason is in its own packets.
bool DamageProofs::explain_exchange(const Finding& finding, const Connection& connection) const {
  return std::ranges::any_of(original_.exchanges, [&](const Reported::Exchange& one) {
    if (one.xid != finding.xid || !same_ends(original_.connections[one.connection], connection)) {
      return false;
    }
    const Connection& known = original_.connections[one.connection];
    // What is missing of one packet may make others unreadable.
    if (finding.sentence.find("cannot be decoded") != std::string::npos) {
      return alterations_.lacks(known, other(one.caller));
    }
    if (finding.kind == finding::unanswered) {
      return !one.reply || alterations_.lacks(known, other(one.caller),
                                              range_of(one.reply->first, one.reply->last));
    }
    if (finding.kind == finding::without_call) {
      return !one.call ||
             alterations_.lacks(known, one.caller, range_of(one.call->first, one.call->last));
    }
    if (!one.call || !one.reply) return true;
    if (finding.sentence.find("cannot be assigned") != std::string::npos) {
      return alterations_.lacks(known, range_of(1, one.reply->last));
    }
    // What comes before its call is kept for it, unless packets are missing between them: they may
    // be another call that names the same memory.
    PacketRange range = range_of(one.call->first, one.reply->last);
    range.first -= std::min(range.first, moved_);
    range.last += moved_;
    return alterations_.lacks(known, range);
  });
}

// Each of its operations without an answer must have lost one.
bool DamageProofs::explain_unanswered(const Connection& connection, Side side) const {
  return std::ranges::all_of(altered_.operations, [&](const Operation& one) {
    return one.connection != connection.id || one.side != side ||
           one.outcome != Operation::Outcome::unanswered || is_reason(one, connection);
  });
}

bool DamageProofs::is_reason(const Operation& unanswered, const Connection& connection) const {
  const std::uint64_t frame = alterations_.number_of(unanswered.start.frame) + 1;
  return std::ranges::any_of(original_.operations, [&](const Operation& one) {
    const Connection& known = original_.connections[one.connection];
    if (one.start.frame != frame || one.kind != unanswered.kind || !same_ends(known, connection)) {
      return false;
    }
    return one.outcome != Operation::Outcome::complete ||
           alterations_.lacks(known, other(one.side), range_of(one.start.frame, one.end.frame));
  });
}

bool DamageProofs::lacks_request(const Operation& whole) const {
  return alterations_.lacks_packet(static_cast<std::size_t>(whole.start.frame) - 1);
}

}  // namespace weft::capture::test
