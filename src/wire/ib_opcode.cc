#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/ib_transport.h"

namespace weft::wire {
namespace {

// An opcode is three bits of transport and five of operation; not every pair exists. Packets with
// an unknown one keep everything behind the BTH as payload.
constexpr bool is_known(IbOpcode opcode) {
  using Operation = IbOperation;
  const Operation operation = opcode.operation;
  switch (opcode.transport) {
    case IbTransport::rc:
    case IbTransport::xrc:
      return operation <= Operation::send_only_invalidate && operation != Operation::resync;
    case IbTransport::uc:
      return operation <= Operation::write_only_immediate;
    case IbTransport::rd:
      return operation <= Operation::resync;
    case IbTransport::ud:
      return operation == Operation::send_only || operation == Operation::send_only_immediate;
    case IbTransport::cnp:
      // Congestion notification packets of RoCE have one opcode of their own range.
      return opcode == congestion_notification;
  }
  return false;
}

// From the responder to the requester.
constexpr bool is_answer(IbOperation operation) {
  return operation >= IbOperation::read_response_first &&
         operation <= IbOperation::atomic_acknowledge;
}

// Which extended headers follow the BTH, in the order of their fields in IbLayout, depends on the
// opcode alone.
constexpr IbLayout layout_of(IbOpcode opcode) {
  using Operation = IbOperation;
  IbLayout layout;
  layout.known = is_known(opcode);
  if (!layout.known || opcode.transport == IbTransport::cnp) {
    layout.payload = true;
    return layout;
  }
  const Operation operation = opcode.operation;
  const bool request = !is_answer(operation);
  layout.rdeth = opcode.transport == IbTransport::rd;
  layout.deth = opcode.transport == IbTransport::ud || (layout.rdeth && request);
  layout.xrceth = opcode.transport == IbTransport::xrc && request;
  layout.reth = operation == Operation::write_first || operation == Operation::write_only ||
                operation == Operation::write_only_immediate ||
                operation == Operation::read_request;
  layout.atomic = operation == Operation::compare_swap || operation == Operation::fetch_add;
  layout.aeth = !request && operation != Operation::read_response_middle;
  layout.atomic_ack = operation == Operation::atomic_acknowledge;
  layout.immediate =
      operation == Operation::send_last_immediate || operation == Operation::send_only_immediate ||
      operation == Operation::write_last_immediate || operation == Operation::write_only_immediate;
  layout.invalidate =
      operation == Operation::send_last_invalidate || operation == Operation::send_only_invalidate;
  layout.payload =
      operation <= Operation::write_only_immediate ||
      (operation >= Operation::read_response_first && operation <= Operation::read_response_only) ||
      layout.invalidate;
  return layout;
}

// By code. Each packet needs its layout several times.
constexpr auto layouts = [] {
  std::array<IbLayout, 256> all{};
  for (std::size_t code = 0; code < all.size(); ++code) {
    all[code] = layout_of(IbOpcode::of(static_cast<std::uint8_t>(code)));
  }
  return all;
}();

}  // namespace

IbLayout IbLayout::of(IbOpcode opcode) {
  return layouts[opcode.code()];
}

const char* describe(IbTransport transport) {
  switch (transport) {
    case IbTransport::rc:
      return "RC";
    case IbTransport::uc:
      return "UC";
    case IbTransport::rd:
      return "RD";
    case IbTransport::ud:
      return "UD";
    case IbTransport::cnp:
      return "CNP";
    case IbTransport::xrc:
      return "XRC";
  }
  return "unknown transport";
}

const char* describe(IbOperation operation) {
  switch (operation) {
    case IbOperation::send_first:
      return "Send First";
    case IbOperation::send_middle:
      return "Send Middle";
    case IbOperation::send_last:
      return "Send Last";
    case IbOperation::send_last_immediate:
      return "Send Last with Immediate";
    case IbOperation::send_only:
      return "Send Only";
    case IbOperation::send_only_immediate:
      return "Send Only with Immediate";
    case IbOperation::write_first:
      return "RDMA Write First";
    case IbOperation::write_middle:
      return "RDMA Write Middle";
    case IbOperation::write_last:
      return "RDMA Write Last";
    case IbOperation::write_last_immediate:
      return "RDMA Write Last with Immediate";
    case IbOperation::write_only:
      return "RDMA Write Only";
    case IbOperation::write_only_immediate:
      return "RDMA Write Only with Immediate";
    case IbOperation::read_request:
      return "RDMA Read Request";
    case IbOperation::read_response_first:
      return "RDMA Read Response First";
    case IbOperation::read_response_middle:
      return "RDMA Read Response Middle";
    case IbOperation::read_response_last:
      return "RDMA Read Response Last";
    case IbOperation::read_response_only:
      return "RDMA Read Response Only";
    case IbOperation::acknowledge:
      return "Acknowledge";
    case IbOperation::atomic_acknowledge:
      return "Atomic Acknowledge";
    case IbOperation::compare_swap:
      return "Compare and Swap";
    case IbOperation::fetch_add:
      return "Fetch and Add";
    case IbOperation::resync:
      return "Resync";
    case IbOperation::send_last_invalidate:
      return "Send Last with Invalidate";
    case IbOperation::send_only_invalidate:
      return "Send Only with Invalidate";
  }
  return "unknown operation";
}

const char* describe(Aeth::Nak code) {
  switch (code) {
    case Aeth::Nak::psn_sequence_error:
      return "PSN sequence error";
    case Aeth::Nak::invalid_request:
      return "invalid request";
    case Aeth::Nak::remote_access_error:
      return "remote access error";
    case Aeth::Nak::remote_operational_error:
      return "remote operational error";
    case Aeth::Nak::invalid_rd_request:
      return "invalid RD request";
  }
  return "unknown NAK";
}

}  // namespace weft::wire
