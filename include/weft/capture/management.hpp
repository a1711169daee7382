// Management datagrams of InfiniBand: to queue pair 0 (subnet management) and queue pair 1 (general
// services, with the connection manager). InfiniBand Architecture Specification, volume 1, chapters
// 12 to 16.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/host_address.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// The common header (§13.4.3), with what follows it.
struct ManagementDatagram {
  Stamp stamp;
  HostAddress source;
  HostAddress destination;
  std::uint32_t queue_pair = 1;  // 0 or 1
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint8_t method = 0;
  std::uint16_t status = 0;
  std::uint64_t transaction = 0;
  std::uint16_t attribute = 0;
  std::uint32_t modifier = 0;
  Bytes message;  // after the header, as far as it was captured; valid during the call only
};

// A field of a message. The name is in static storage.
struct ManagementField {
  std::string_view name;
  std::string value;
};

// Returns the name of the class, such as "ComMgt" (§13.4.4); its number in hexadecimal if it has no
// name here.
[[nodiscard]] WEFT_API std::string class_text(const ManagementDatagram& datagram);
// Returns the name of the method, such as "Send" (§13.4.5, §15.2.2); its number in hexadecimal if
// it has no name here.
[[nodiscard]] WEFT_API std::string method_text(const ManagementDatagram& datagram);
// Returns the name that the attribute has in its class, such as "REQ"; its number in hexadecimal if
// it has no name here.
[[nodiscard]] WEFT_API std::string attribute_text(const ManagementDatagram& datagram);
// Returns the fields of a message of the connection manager, in their order; of REQ also those of
// the header of rdma_cm in its private data (Annex A11). Fields that were not captured are left
// out, and so is an alternate path of zeros. Messages of other classes have none.
[[nodiscard]] WEFT_API std::vector<ManagementField> fields_of(const ManagementDatagram& datagram);
// Returns the reason of a REJ: "invalid service ID". A number if it has no name.
[[nodiscard]] WEFT_API std::string reject_reason_text(std::uint16_t reason);

class ManagementSink {
 public:
  virtual ~ManagementSink() = default;
  // Called for each datagram whose whole header was captured. `datagram` is valid during the call
  // only.
  virtual void on_management(const ManagementDatagram& datagram) = 0;
};

}  // namespace weft::capture
