#include "weft/capture/connection.hpp"

#include <fmt/format.h>

#include "wire/terminate.h"

namespace weft::capture {

const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::iwarp:
      return "iWARP";
    case Transport::rc:
      return "RC";
    case Transport::uc:
      return "UC";
    case Transport::ud:
      return "UD";
    case Transport::rd:
      return "RD";
    case Transport::xrc:
      return "XRC";
  }
  return "?";
}

const char* to_string(Connection::End end) {
  switch (end) {
    case Connection::End::open:
      return "open";
    case Connection::End::half_open:
      return "half-open";
    case Connection::End::closed:
      return "closed";
    case Connection::End::reset:
      return "reset";
    case Connection::End::terminated:
      return "terminated";
    case Connection::End::rejected:
      return "rejected";
    case Connection::End::unanswered:
      return "unanswered";
    case Connection::End::forgotten:
      return "forgotten";
  }
  return "?";
}

// Datagrams and unreliable connections have no answers that could be missing.
bool lacks_direction(const Connection& connection) {
  // The first packets of a connection may not be answered yet when the capture ends.
  constexpr std::uint64_t few_packets = 3;
  if (connection.transport == Transport::ud || connection.transport == Transport::uc) return false;
  const auto [a, b] = connection.side_frames;
  return (a == 0) != (b == 0) && a + b > few_packets;
}

// An IPv6 address with a port is written in brackets (RFC 5952 §6).
std::string endpoint_text(const Connection& connection, Side side) {
  const Endpoint& endpoint = connection.endpoint(side);
  const std::string address = to_string(endpoint.address);
  if (connection.transport != Transport::iwarp) {
    // The BTH names the destination queue pair only, so the number of a side stays unknown until a
    // packet to that side or another source gives it.
    return endpoint.known ? fmt::format("{} QP {:#x}", address, endpoint.number)
                          : fmt::format("{} QP ?", address);
  }
  // Only an IPv6 address in its own notation has colons.
  const bool bracketed = address.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(bracketed ? "[{}]:{}" : "{}:{}"), address, endpoint.number);
}

std::string refusal_text(const Refusal& refusal) {
  switch (refusal.kind) {
    case Refusal::Kind::terminate:
      return "Terminate: " +
             describe(wire::TerminateCode{refusal.layer, refusal.type, refusal.code});
    case Refusal::Kind::sequence_error:
      return fmt::format("NAK: PSN {} expected", refusal.psn);
    case Refusal::Kind::invalid_request:
      return "NAK: invalid request";
    case Refusal::Kind::access_error:
      return "NAK: remote access error";
    case Refusal::Kind::operational_error:
      return "NAK: remote operational error";
    case Refusal::Kind::invalid_rd_request:
      return "NAK: invalid RD request";
    case Refusal::Kind::receiver_not_ready:
      return "RNR NAK";
  }
  return "?";
}

}  // namespace weft::capture
