// Names of classes, methods and attributes of management datagrams, and of reasons of a REJ.
#include <fmt/format.h>

#include "capture/text/fields_wire.h"
#include "weft/capture/management.hpp"

namespace weft::capture {
namespace {

// §13.4.4
constexpr std::uint8_t subnet_lid_routed = 0x01;
constexpr std::uint8_t subnet_administration = 0x03;
constexpr std::uint8_t performance = 0x04;
constexpr std::uint8_t device_management = 0x06;
constexpr std::uint8_t communication_management = 0x07;
constexpr std::uint8_t congestion_control = 0x21;
constexpr std::uint8_t subnet_directed_route = 0x81;

constexpr CodeName classes[] = {
    {subnet_lid_routed, "SubnMgt"},
    {subnet_administration, "SubnAdm"},
    {performance, "PerfMgt"},
    {0x05, "BasebMgt"},
    {device_management, "DevMgt"},
    {communication_management, "ComMgt"},
    {0x08, "SNMP"},
    {0x10, "DevAdm"},
    {0x11, "BootMgt"},
    {0x12, "BIS"},
    {congestion_control, "CongCtrl"},
    {subnet_directed_route, "SubnMgt (directed route)"},
};

// §13.4.5 and §15.2.2
constexpr CodeName methods[] = {
    {0x01, "Get"},          {0x02, "Set"},          {0x03, "Send"},       {0x05, "Trap"},
    {0x06, "Report"},       {0x07, "TrapRepress"},  {0x12, "GetTable"},   {0x13, "GetTraceTable"},
    {0x14, "GetMulti"},     {0x15, "Delete"},       {0x81, "GetResp"},    {0x86, "ReportResp"},
    {0x92, "GetTableResp"}, {0x94, "GetMultiResp"}, {0x95, "DeleteResp"},
};

// §14.2.5
constexpr CodeName subnet_attributes[] = {
    {0x02, "Notice"},
    {0x10, "NodeDescription"},
    {0x11, "NodeInfo"},
    {0x12, "SwitchInfo"},
    {0x14, "GUIDInfo"},
    {0x15, "PortInfo"},
    {0x16, "P_KeyTable"},
    {0x17, "SLtoVLMappingTable"},
    {0x18, "VLArbitrationTable"},
    {0x19, "LinearForwardingTable"},
    {0x1A, "RandomForwardingTable"},
    {0x1B, "MulticastForwardingTable"},
    {0x20, "SMInfo"},
    {0x30, "VendorDiag"},
    {0x31, "LedInfo"},
};
// §15.2.5
constexpr CodeName administration_attributes[] = {
    {0x01, "ClassPortInfo"},
    {0x02, "Notice"},
    {0x03, "InformInfo"},
    {0x11, "NodeRecord"},
    {0x12, "PortInfoRecord"},
    {0x13, "SLtoVLMappingTableRecord"},
    {0x14, "SwitchInfoRecord"},
    {0x15, "LinearForwardingTableRecord"},
    {0x16, "RandomForwardingTableRecord"},
    {0x17, "MulticastForwardingTableRecord"},
    {0x18, "SMInfoRecord"},
    {0x20, "LinkRecord"},
    {0x30, "GUIDInfoRecord"},
    {0x31, "ServiceRecord"},
    {0x33, "P_KeyTableRecord"},
    {0x35, "PathRecord"},
    {0x36, "VLArbitrationTableRecord"},
    {0x38, "MCMemberRecord"},
    {0x39, "TraceRecord"},
    {0x3A, "MultiPathRecord"},
    {0x3B, "ServiceAssociationRecord"},
    {0xF3, "InformInfoRecord"},
};
// §16.1.3
constexpr CodeName performance_attributes[] = {
    {0x01, "ClassPortInfo"},        {0x10, "PortSamplesControl"},  {0x11, "PortSamplesResult"},
    {0x12, "PortCounters"},         {0x15, "PortRcvErrorDetails"}, {0x16, "PortXmitDiscardDetails"},
    {0x1D, "PortCountersExtended"},
};
// §16.3.3
constexpr CodeName device_attributes[] = {
    {0x01, "ClassPortInfo"},       {0x02, "Notice"},         {0x10, "IOUnitInfo"},
    {0x11, "IOControllerProfile"}, {0x12, "ServiceEntries"}, {0x20, "DiagnosticTimeout"},
};
// §12.6 and §12.11
constexpr CodeName communication_attributes[] = {
    {0x01, "ClassPortInfo"}, {0x10, "REQ"},      {0x11, "MRA"},  {0x12, "REJ"},
    {0x13, "REP"},           {0x14, "RTU"},      {0x15, "DREQ"}, {0x16, "DREP"},
    {0x17, "SIDR_REQ"},      {0x18, "SIDR_REP"}, {0x19, "LAP"},  {0x1A, "APR"},
};
// Annex A10.4.3
constexpr CodeName congestion_attributes[] = {
    {0x01, "ClassPortInfo"},
    {0x02, "Notice"},
    {0x11, "CongestionInfo"},
    {0x12, "CongestionKeyInfo"},
    {0x13, "CongestionLog"},
    {0x14, "SwitchCongestionSetting"},
    {0x15, "SwitchPortCongestionSetting"},
    {0x16, "CACongestionSetting"},
    {0x17, "CongestionControlTable"},
    {0x18, "TimeStamp"},
};
constexpr CodeName common_attributes[] = {{0x01, "ClassPortInfo"}, {0x02, "Notice"}};

std::span<const CodeName> attributes_of(std::uint8_t management_class) {
  switch (management_class) {
    case subnet_lid_routed:
    case subnet_directed_route:
      return subnet_attributes;
    case subnet_administration:
      return administration_attributes;
    case performance:
      return performance_attributes;
    case device_management:
      return device_attributes;
    case communication_management:
      return communication_attributes;
    case congestion_control:
      return congestion_attributes;
    default:
      return common_attributes;
  }
}

// §12.6.7.2
constexpr CodeName reject_reasons[] = {
    {1, "no queue pair available"},
    {2, "no EE context available"},
    {3, "no resources available"},
    {4, "timeout"},
    {5, "unsupported request"},
    {6, "invalid communication ID"},
    {7, "invalid communication instance"},
    {8, "invalid service ID"},
    {9, "invalid transport service type"},
    {10, "stale connection"},
    {11, "RDC does not exist"},
    {12, "primary remote GID rejected"},
    {13, "primary remote LID rejected"},
    {14, "invalid primary SL"},
    {15, "invalid primary traffic class"},
    {16, "invalid primary hop limit"},
    {17, "invalid primary packet rate"},
    {18, "alternate remote GID rejected"},
    {19, "alternate remote LID rejected"},
    {20, "invalid alternate SL"},
    {21, "invalid alternate traffic class"},
    {22, "invalid alternate hop limit"},
    {23, "invalid alternate packet rate"},
    {24, "port and CM redirection"},
    {25, "port redirection"},
    {26, "invalid path MTU"},
    {27, "insufficient responder resources"},
    {28, "consumer reject"},
    {29, "RNR retry count rejected"},
    {30, "duplicate local communication ID"},
    {31, "invalid class version"},
    {32, "invalid primary flow label"},
    {33, "invalid alternate flow label"},
};

std::string named(std::span<const CodeName> names, std::uint32_t code) {
  const std::string_view name = name_of(names, code, "");
  return name.empty() ? fmt::format("{:#x}", code) : std::string(name);
}

}  // namespace

std::string class_text(const ManagementDatagram& datagram) {
  return named(classes, datagram.management_class);
}

std::string method_text(const ManagementDatagram& datagram) {
  return named(methods, datagram.method);
}

std::string attribute_text(const ManagementDatagram& datagram) {
  return named(attributes_of(datagram.management_class), datagram.attribute);
}

std::string reject_reason_text(std::uint16_t reason) {
  const std::string_view name = name_of(reject_reasons, reason, "");
  return name.empty() ? fmt::format("reason {}", reason) : std::string(name);
}

}  // namespace weft::capture
