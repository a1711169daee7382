// The fields of the connection manager's messages, by tables of their places (InfiniBand
// Architecture Specification, volume 1, §12.6 and §12.11; the paragraphs are of it).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "capture/text/fields_wire.h"
#include "capture/text/units.h"
#include "weft/capture/management.hpp"
#include "wire/ib_cm.h"

namespace weft::capture {
namespace {

enum class Form : std::uint8_t {
  decimal,
  hex,
  yes_no,
  gid,      // of 16 bytes
  address,  // of 16 bytes: of IP, by the version in the header of rdma_cm
  time,     // 4.096 µs times a power of two
  mtu,      // path_mtu_bytes() of wire::CmRequest
  rate,     // of packets
  transport,
  message,  // the one that a REJ or an MRA answers
  reason,
  sidr_status,
};

// A field of up to 64 bits within a message, after the common header.
struct Place {
  std::string_view name;
  std::uint16_t byte = 0;
  std::uint8_t bit = 0;  // of the first byte, from the highest
  std::uint8_t bits = 0;
  Form form = Form::decimal;
};

// §12.6.5
constexpr Place request[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"service_id", 8, 0, 64, Form::hex},
    {"local_ca_guid", 16, 0, 64, Form::hex},
    {"local_q_key", 28, 0, 32, Form::hex},
    {"local_qp", 32, 0, 24, Form::hex},
    {"responder_resources", 35, 0, 8},
    {"local_ee", 36, 0, 24, Form::hex},
    {"initiator_depth", 39, 0, 8},
    {"remote_ee", 40, 0, 24, Form::hex},
    {"remote_response_timeout", 43, 0, 5, Form::time},
    {"transport_service", 43, 5, 2, Form::transport},
    {"end_to_end_flow_control", 43, 7, 1, Form::yes_no},
    {"starting_psn", 44, 0, 24},
    {"local_response_timeout", 47, 0, 5, Form::time},
    {"retry_count", 47, 5, 3},
    {"p_key", 48, 0, 16, Form::hex},
    {"path_mtu", 50, 0, 4, Form::mtu},
    {"rdc_exists", 50, 4, 1, Form::yes_no},
    {"rnr_retry_count", 50, 5, 3},
    {"max_cm_retries", 51, 0, 4},
    {"srq", 51, 4, 1, Form::yes_no},
    {"extended_transport", 51, 5, 3},
    {"primary_local_lid", 52, 0, 16},
    {"primary_remote_lid", 54, 0, 16},
    {"primary_local_gid", 56, 0, 0, Form::gid},
    {"primary_remote_gid", 72, 0, 0, Form::gid},
    {"primary_flow_label", 88, 0, 20, Form::hex},
    {"primary_packet_rate", 91, 2, 6, Form::rate},
    {"primary_traffic_class", 92, 0, 8},
    {"primary_hop_limit", 93, 0, 8},
    {"primary_sl", 94, 0, 4},
    {"primary_subnet_local", 94, 4, 1, Form::yes_no},
    {"primary_local_ack_timeout", 95, 0, 5, Form::time},
    {"alternate_local_lid", 96, 0, 16},
    {"alternate_remote_lid", 98, 0, 16},
    {"alternate_local_gid", 100, 0, 0, Form::gid},
    {"alternate_remote_gid", 116, 0, 0, Form::gid},
    {"alternate_flow_label", 132, 0, 20, Form::hex},
    {"alternate_packet_rate", 135, 2, 6, Form::rate},
    {"alternate_traffic_class", 136, 0, 8},
    {"alternate_hop_limit", 137, 0, 8},
    {"alternate_sl", 138, 0, 4},
    {"alternate_subnet_local", 138, 4, 1, Form::yes_no},
    {"alternate_local_ack_timeout", 139, 0, 5, Form::time},
};
// §12.6.6
constexpr Place message_received[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"remote_id", 4, 0, 32, Form::hex},
    {"message", 8, 0, 2, Form::message},
    {"service_timeout", 9, 0, 5, Form::time},
};
// §12.6.7
constexpr Place reject[] = {
    {"local_id", 0, 0, 32, Form::hex},   {"remote_id", 4, 0, 32, Form::hex},
    {"message", 8, 0, 2, Form::message}, {"information_bytes", 9, 0, 7},
    {"reason", 10, 0, 16, Form::reason},
};
// §12.6.8
constexpr Place reply[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"remote_id", 4, 0, 32, Form::hex},
    {"local_q_key", 8, 0, 32, Form::hex},
    {"local_qp", 12, 0, 24, Form::hex},
    {"local_ee", 16, 0, 24, Form::hex},
    {"starting_psn", 20, 0, 24},
    {"responder_resources", 24, 0, 8},
    {"initiator_depth", 25, 0, 8},
    {"target_ack_delay", 26, 0, 5, Form::time},
    {"failover_accepted", 26, 5, 2},
    {"end_to_end_flow_control", 26, 7, 1, Form::yes_no},
    {"rnr_retry_count", 27, 0, 3},
    {"srq", 27, 3, 1, Form::yes_no},
    {"local_ca_guid", 28, 0, 64, Form::hex},
};
// §12.6.9, §12.6.11
constexpr Place pair[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"remote_id", 4, 0, 32, Form::hex},
};
// §12.6.10
constexpr Place disconnect_request[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"remote_id", 4, 0, 32, Form::hex},
    {"remote_qp", 8, 0, 24, Form::hex},
};
// §12.11.1
constexpr Place service_request[] = {
    {"request_id", 0, 0, 32, Form::hex},
    {"p_key", 4, 0, 16, Form::hex},
    {"service_id", 8, 0, 64, Form::hex},
};
// §12.11.2
constexpr Place service_reply[] = {
    {"request_id", 0, 0, 32, Form::hex},  {"sidr_status", 4, 0, 8, Form::sidr_status},
    {"information_bytes", 5, 0, 8},       {"qp", 8, 0, 24, Form::hex},
    {"service_id", 12, 0, 64, Form::hex}, {"q_key", 20, 0, 32, Form::hex},
};
// §12.8.1
constexpr Place load_alternate_path[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"remote_id", 4, 0, 32, Form::hex},
    {"remote_qp", 12, 0, 24, Form::hex},
    {"remote_response_timeout", 15, 0, 5, Form::time},
    {"alternate_local_lid", 20, 0, 16},
    {"alternate_remote_lid", 22, 0, 16},
    {"alternate_local_gid", 24, 0, 0, Form::gid},
    {"alternate_remote_gid", 40, 0, 0, Form::gid},
    {"alternate_flow_label", 56, 0, 20, Form::hex},
    {"alternate_traffic_class", 59, 0, 8},
    {"alternate_hop_limit", 60, 0, 8},
    {"alternate_packet_rate", 61, 2, 6, Form::rate},
    {"alternate_sl", 62, 0, 4},
    {"alternate_subnet_local", 62, 4, 1, Form::yes_no},
    {"alternate_local_ack_timeout", 63, 0, 5, Form::time},
};
// §12.8.2
constexpr Place alternate_path_response[] = {
    {"local_id", 0, 0, 32, Form::hex},
    {"remote_id", 4, 0, 32, Form::hex},
    {"information_bytes", 8, 0, 8},
    {"ap_status", 9, 0, 8},
};
// Annex A11.2: the header of rdma_cm, in the private data of a REQ.
constexpr std::size_t ip_header_at = wire::CmRequest::header_bytes;
constexpr Place ip_header[] = {
    {"ip_cm_version", ip_header_at, 0, 8, Form::hex},
    {"ip_version", ip_header_at + 1, 0, 4},
    {"source_port", ip_header_at + 2, 0, 16},
    {"source_address", ip_header_at + 4, 0, 0, Form::address},
    {"destination_address", ip_header_at + 20, 0, 0, Form::address},
};

std::span<const Place> places_of(wire::CmAttribute attribute) {
  using Attribute = wire::CmAttribute;
  switch (attribute) {
    case Attribute::request:
      return request;
    case Attribute::message_received:
      return message_received;
    case Attribute::reject:
      return reject;
    case Attribute::reply:
      return reply;
    case Attribute::ready_to_use:
    case Attribute::disconnect_reply:
      return pair;
    case Attribute::disconnect_request:
      return disconnect_request;
    case Attribute::service_id_request:
      return service_request;
    case Attribute::service_id_reply:
      return service_reply;
    case Attribute::load_alternate_path:
      return load_alternate_path;
    case Attribute::alternate_path_response:
      return alternate_path_response;
  }
  return {};
}

// Returns the bits of a field as a number; nullopt if the message was cut before its end.
std::optional<std::uint64_t> load_bits(Bytes message, const Place& place) {
  const std::size_t end_bit = place.byte * 8U + place.bit + place.bits;
  const std::size_t last_byte = (end_bit + 7) / 8;
  if (last_byte > message.size()) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t at = place.byte; at < last_byte; ++at) {
    value = value << 8 | std::to_integer<std::uint64_t>(message[at]);
  }
  value >>= last_byte * 8 - end_bit;
  return place.bits == 64 ? value : value & ((std::uint64_t{1} << place.bits) - 1);
}

// §9.7.5.1.3: the local ack timeout; others are of the same form.
std::string time_text(std::uint64_t exponent) {
  constexpr std::int64_t unit_ns = 4096;
  return duration_text(unit_ns << exponent);
}

// §12.7.13: the rates of a PathRecord (§15.2.5.16), in tenths of a Gbit/s.
std::string rate_text(std::uint64_t code) {
  constexpr std::array<std::uint16_t, 23> tenths{0,    0,    25,   100, 300, 50,   200,  400,
                                                 600,  800,  1200, 140, 560, 1120, 1680, 250,
                                                 1000, 2000, 3000, 280, 500, 4000, 6000};
  if (code >= tenths.size() || tenths[code] == 0) return fmt::format("{}", code);
  const unsigned rate = tenths[code];
  return rate % 10 == 0 ? fmt::format("{} Gbit/s", rate / 10)
                        : fmt::format("{}.{} Gbit/s", rate / 10, rate % 10);
}

std::string transport_text(std::uint64_t code) {
  constexpr std::string_view names[] = {"RC", "UC", "RD", "extended"};
  return std::string(names[code & 3U]);
}

// §12.6.7.1 and §12.6.6.1
std::string message_text(std::uint64_t code) {
  constexpr std::string_view names[] = {"REQ", "REP", "another", "3"};
  return std::string(names[code & 3U]);
}

// §12.11.2.1
std::string sidr_status_text(std::uint64_t code) {
  constexpr std::string_view names[] = {
      "valid",      "service not supported", "rejected by the service", "no queue pair",
      "redirected", "version not supported"};
  return code < std::size(names) ? std::string(names[code]) : fmt::format("{}", code);
}

std::string value_text(std::uint64_t value, Form form) {
  switch (form) {
    case Form::decimal:
      return fmt::format("{}", value);
    case Form::hex:
      return fmt::format("{:#x}", value);
    case Form::yes_no:
      return value != 0 ? "yes" : "no";
    case Form::time:
      return time_text(value);
    case Form::mtu: {
      const wire::CmRequest holder{.path_mtu_code = static_cast<std::uint8_t>(value)};
      return fmt::format("{}", holder.path_mtu_bytes());
    }
    case Form::rate:
      return rate_text(value);
    case Form::transport:
      return transport_text(value);
    case Form::message:
      return message_text(value);
    case Form::reason:
      return reject_reason_text(static_cast<std::uint16_t>(value));
    case Form::sidr_status:
      return sidr_status_text(value);
    case Form::gid:
    case Form::address:
      break;  // longer than a number
  }
  return {};
}

// An IPv4 address is in the last four of the sixteen bytes.
std::string address_text(Bytes message, const Place& place) {
  const std::byte* const bytes = message.data() + place.byte;
  if (place.form == Form::gid) return to_string(HostAddress::gid(bytes));
  constexpr std::uint8_t ipv4 = 4;
  constexpr std::size_t ipv4_at = 12;
  const bool is_ipv4 = field_8(message, ip_header_at + 1).value_or(0) >> 4U == ipv4;
  return to_string(is_ipv4 ? HostAddress::ipv4(bytes + ipv4_at) : HostAddress::ipv6(bytes));
}

void add_fields(Bytes message, std::span<const Place> places, std::vector<ManagementField>& out) {
  constexpr std::size_t address_bytes = 16;
  for (const Place& place : places) {
    if (place.form == Form::gid || place.form == Form::address) {
      if (place.byte + address_bytes > message.size()) continue;
      out.push_back({place.name, address_text(message, place)});
    } else if (const auto value = load_bits(message, place)) {
      out.push_back({place.name, value_text(*value, place.form)});
    }
  }
}

// Whether the alternate path of a REQ is zeros: most programs have none.
bool has_no_alternate_path(Bytes message) {
  constexpr std::size_t path_at = 96;
  constexpr std::size_t path_bytes = 44;
  return message.size() >= path_at + path_bytes &&
         std::ranges::all_of(message.subspan(path_at, path_bytes),
                             [](std::byte one) { return one == std::byte{}; });
}

}  // namespace

std::vector<ManagementField> fields_of(const ManagementDatagram& datagram) {
  std::vector<ManagementField> fields;
  if (datagram.management_class != wire::connection_management_class) return fields;
  const wire::CmAttribute attribute{datagram.attribute};
  add_fields(datagram.message, places_of(attribute), fields);
  if (attribute == wire::CmAttribute::request) {
    if (has_no_alternate_path(datagram.message)) {
      std::erase_if(fields, [](const ManagementField& field) {
        return field.name.starts_with("alternate_");
      });
    }
    const auto message = wire::CmRequest::parse(datagram.message);
    if (message && wire::CmIpHeader::belongs_to(message->service)) {
      add_fields(datagram.message, ip_header, fields);
    }
  }
  return fields;
}

}  // namespace weft::capture
