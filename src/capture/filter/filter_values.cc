// Where the values of the fields come from.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "capture/filter/filter.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture {
namespace {

using Record = FilterRecord;
using Visit = FilterVisitor;

// The order of the fields in filter_fields.
struct Getter {
  std::string_view name;
  void (*values)(const Record& record, const Visit& visit);
};

void visit_text(const Visit& visit, std::string_view text) {
  visit(text);
}

void visit_number(const Visit& visit, std::uint64_t number) {
  visit(number);
}

void visit_address(const Visit& visit, const HostAddress& address) {
  if (address.kind != HostAddress::Kind::none) visit(address);
}

bool is_connection(const Record& record) {
  return !record.operation && !record.rpc && !record.command && !record.finding &&
         !record.management;
}

// --- All records ---------------------------------------------------------------------------------

void visit_endpoints(const Record& record, const Visit& visit, bool iwarp) {
  if (!record.connection || (record.connection->transport == Transport::iwarp) != iwarp) return;
  for (const Side side : {Side::a, Side::b}) {
    const Endpoint& end = record.connection->endpoint(side);
    if (end.known) visit_number(visit, end.number);
  }
}

template <typename Use>
void with_stamps(const Record& record, Use use) {
  if (record.operation) return use(record.operation->start);
  if (record.rpc) return use(record.rpc->call ? record.rpc->call->first : record.rpc->reply->first);
  if (record.command) return use(first_stamp(*record.command));
  if (record.management) return use(record.management->stamp);
  if (!record.finding) return use(record.connection->first);
  for (const Stamp& stamp : record.finding->stamps) use(stamp);
}

void visit_side(const Record& record, const Visit& visit, bool requester) {
  Side side = Side::a;
  if (record.operation) {
    side = record.operation->side;
  } else if (record.rpc) {
    side = record.rpc->caller;
  } else if (record.command) {
    side = record.command->requester;
  } else {
    return;
  }
  visit_address(visit, record.connection->endpoint(requester ? side : other(side)).address);
}

constexpr Getter of_all[] = {
    {"connection",
     [](const Record& record, const Visit& visit) {
       if (record.connection) visit_number(visit, std::uint64_t{record.connection->id} + 1);
     }},
    {"transport",
     [](const Record& record, const Visit& visit) {
       if (record.connection) visit_text(visit, to_string(record.connection->transport));
     }},
    {"peer",
     [](const Record& record, const Visit& visit) {
       if (record.management) {
         visit_address(visit, record.management->source);
         return visit_address(visit, record.management->destination);
       }
       visit_address(visit, record.connection->a.address);
       visit_address(visit, record.connection->b.address);
     }},
    {"port",
     [](const Record& record, const Visit& visit) { visit_endpoints(record, visit, true); }},
    {"qp", [](const Record& record, const Visit& visit) { visit_endpoints(record, visit, false); }},
    {"frame",
     [](const Record& record, const Visit& visit) {
       with_stamps(record, [&](const Stamp& stamp) { visit_number(visit, stamp.frame); });
     }},
    {"time",
     [](const Record& record, const Visit& visit) {
       with_stamps(record, [&](const Stamp& stamp) { visit(stamp.time_ns - record.origin_ns); });
     }},
    {"requester",
     [](const Record& record, const Visit& visit) { visit_side(record, visit, true); }},
    {"responder",
     [](const Record& record, const Visit& visit) { visit_side(record, visit, false); }},
    {"connection.end",
     [](const Record& record, const Visit& visit) {
       if (!is_connection(record)) return;
       visit_text(visit, to_string(record.connection->end));
     }},
    {"connection.frames",
     [](const Record& record, const Visit& visit) {
       if (is_connection(record)) visit_number(visit, record.connection->frames);
     }},
};

// --- Operations ----------------------------------------------------------------------------------

using OfOperation = void (*)(const Operation& operation, const Visit& visit);

template <OfOperation get>
void of_operation(const Record& record, const Visit& visit) {
  if (record.operation) get(*record.operation, visit);
}
// What is not known of a message for extraction.
template <OfOperation get>
void of_ended_operation(const Record& record, const Visit& visit) {
  if (record.operation && !record.message) get(*record.operation, visit);
}

bool has_memory(const Operation& operation) {
  return operation.is_request() || operation.kind == Operation::Kind::write;
}

constexpr Getter of_operations[] = {
    {"operation.kind", of_operation<[](const Operation& operation, const Visit& visit) {
       visit_text(visit, to_string(operation.kind));
     }>},
    {"operation.bytes", of_operation<[](const Operation& operation, const Visit& visit) {
       visit_number(visit, operation.bytes);
     }>},
    {"operation.key", of_operation<[](const Operation& operation, const Visit& visit) {
       if (has_memory(operation)) visit_number(visit, operation.key);
       if (operation.invalidated_key != 0) visit_number(visit, operation.invalidated_key);
     }>},
    {"operation.address", of_operation<[](const Operation& operation, const Visit& visit) {
       if (has_memory(operation)) visit_number(visit, operation.address);
     }>},
    {"operation.latency", of_ended_operation<[](const Operation& operation, const Visit& visit) {
       if (operation.latency_ns() >= 0) visit(operation.latency_ns());
     }>},
    {"operation.outcome", of_ended_operation<[](const Operation& operation, const Visit& visit) {
       visit_text(visit, to_string(operation.outcome));
     }>},
    {"operation.not_ready", of_ended_operation<[](const Operation& operation, const Visit& visit) {
       visit_number(visit, operation.not_ready);
     }>},
};

// --- RPCs ----------------------------------------------------------------------------------------

using OfRpc = void (*)(const Rpc& rpc, const Visit& visit);

template <OfRpc get>
void of_rpc(const Record& record, const Visit& visit) {
  if (record.rpc) get(*record.rpc, visit);
}
template <OfRpc get>
void of_rpc_header(const Record& record, const Visit& visit) {
  if (record.rpc && record.rpc->has_header) get(*record.rpc, visit);
}
using OfNfs = void (*)(const NfsOperation& operation, const Visit& visit);
template <OfNfs get>
void of_nfs(const Record& record, const Visit& visit) {
  if (!record.rpc || !record.rpc->nfs) return;
  for (const NfsOperation& operation : record.rpc->nfs->operations) get(operation, visit);
}

void visit_procedure(const Rpc& rpc, const Visit& visit) {
  visit_text(visit, fmt::format("{}", rpc.procedure));
  if (const auto name = procedure_name(rpc); !name.empty()) return visit_text(visit, name);
  if (!rpc.nfs) return;
  if (rpc.nfs->version == 4) visit_text(visit, "COMPOUND");
  for (const NfsOperation& operation : rpc.nfs->operations) visit_text(visit, operation.name);
}

void visit_program(const Rpc& rpc, const Visit& visit) {
  visit_text(visit, fmt::format("{}", rpc.program));
  visit_text(visit, rpc.nfs && rpc.nfs->callback ? "NFS callback" : program_name(rpc.program));
}

std::uint64_t bytes_of(const RpcMessage& message) {
  if (message.whole) return message.whole->size();
  std::uint64_t bytes = message.message.size();
  for (const Assembled& chunk : message.chunks) bytes += chunk.size();
  return bytes;
}

void visit_keys(const RpcMessage& message, const Visit& visit) {
  for (const auto& read : message.lists.reads) visit_number(visit, read.target.handle);
  const auto visit_chunk = [&](const Chunk& chunk) {
    for (const auto& segment : chunk) visit_number(visit, segment.handle);
  };
  for (const Chunk& chunk : message.lists.writes) visit_chunk(chunk);
  if (message.lists.reply) visit_chunk(*message.lists.reply);
}

constexpr Getter of_rpcs[] = {
    {"rpc.xid",
     [](const Record& record, const Visit& visit) {
       if (record.rpc) visit_number(visit, record.rpc->xid);
       if (record.finding && record.finding->xid) visit_number(visit, *record.finding->xid);
     }},
    {"rpc.program", of_rpc_header<visit_program>},
    {"rpc.version",
     of_rpc_header<[](const Rpc& rpc, const Visit& visit) { visit_number(visit, rpc.version); }>},
    {"rpc.procedure", of_rpc_header<visit_procedure>},
    {"rpc.status",
     of_rpc<[](const Rpc& rpc, const Visit& visit) { visit_text(visit, outcome_text(rpc)); }>},
    {"rpc.latency", of_rpc<[](const Rpc& rpc, const Visit& visit) {
       if (rpc.call && rpc.reply) visit(rpc.latency_ns);
     }>},
    {"rpc.transfer", of_rpc<[](const Rpc& rpc, const Visit& visit) {
       if (rpc.call && rpc.reply) visit(rpc.transfer_ns);
     }>},
    {"rpc.held", of_rpc<[](const Rpc& rpc, const Visit& visit) {
       if (rpc.call) visit(rpc.credits_ns + rpc.slots_ns);
     }>},
    {"rpc.bytes", of_rpc<[](const Rpc& rpc, const Visit& visit) {
       visit_number(visit,
                    (rpc.call ? bytes_of(*rpc.call) : 0) + (rpc.reply ? bytes_of(*rpc.reply) : 0));
     }>},
    {"rpc.retransmissions",
     of_rpc<[](const Rpc& rpc, const Visit& visit) { visit_number(visit, rpc.retransmissions); }>},
    {"rpc.key", of_rpc<[](const Rpc& rpc, const Visit& visit) {
       if (rpc.call) visit_keys(*rpc.call, visit);
       if (rpc.reply) visit_keys(*rpc.reply, visit);
     }>},
    {"rpc.uid", of_rpc_header<[](const Rpc& rpc, const Visit& visit) {
       if (rpc.flavor == wire::AuthFlavor::sys) visit_number(visit, rpc.uid);
     }>},
    {"nfs.name", of_nfs<[](const NfsOperation& operation, const Visit& visit) {
       if (!operation.entry.empty()) visit_text(visit, operation.entry);
       // The target of other operations is the content of a link.
       if (operation.name == "RENAME") visit_text(visit, operation.target);
     }>},
    {"nfs.offset", of_nfs<[](const NfsOperation& operation, const Visit& visit) {
       if (operation.has_range) visit_number(visit, operation.offset);
     }>},
    {"nfs.count", of_nfs<[](const NfsOperation& operation, const Visit& visit) {
       if (operation.has_range) visit_number(visit, operation.count);
     }>},
    {"nfs.slot", of_rpc<[](const Rpc& rpc, const Visit& visit) {
       if (rpc.nfs && rpc.nfs->session) visit_number(visit, rpc.nfs->session->slot);
     }>},
};

// --- Storage commands ----------------------------------------------------------------------------

using OfCommand = void (*)(const StorageCommand& command, const Visit& visit);

template <OfCommand get>
void of_command(const Record& record, const Visit& visit) {
  if (record.command) get(*record.command, visit);
}
template <auto member>
void of_command_number(const Record& record, const Visit& visit) {
  if (record.command && record.command->*member) visit_number(visit, *(record.command->*member));
}

std::string_view protocol_word(StorageProtocol protocol) {
  switch (protocol) {
    case StorageProtocol::nvme:
      return "nvme";
    case StorageProtocol::smb_direct:
      return "smb";
    case StorageProtocol::iser:
      return "iser";
    case StorageProtocol::srp:
      return "srp";
  }
  return "";
}

constexpr Getter of_commands[] = {
    {"command.protocol", of_command<[](const StorageCommand& command, const Visit& visit) {
       visit_text(visit, protocol_word(command.protocol));
     }>},
    {"command.name", of_command<[](const StorageCommand& command, const Visit& visit) {
       if (!command.name.empty()) visit_text(visit, command.name);
     }>},
    {"command.outcome", of_command<[](const StorageCommand& command, const Visit& visit) {
       visit_text(visit, to_string(command.outcome));
     }>},
    {"command.status", of_command<[](const StorageCommand& command, const Visit& visit) {
       if (command.answer) visit_text(visit, command.status_text);
     }>},
    {"command.latency", of_command<[](const StorageCommand& command, const Visit& visit) {
       if (command.latency_ns >= 0) visit(command.latency_ns);
     }>},
    {"command.transfer", of_command<[](const StorageCommand& command, const Visit& visit) {
       if (command.latency_ns >= 0) visit(command.transfer_ns);
     }>},
    {"command.held", of_command<[](const StorageCommand& command, const Visit& visit) {
       if (command.request) visit(command.timing.credits_ns + command.timing.queue_ns);
     }>},
    {"command.bytes", of_command<[](const StorageCommand& command, const Visit& visit) {
       visit_number(visit, command.bytes);
     }>},
    {"command.id", of_command<[](const StorageCommand& command, const Visit& visit) {
       visit_number(visit, command.id);
     }>},
    {"command.key", of_command<[](const StorageCommand& command, const Visit& visit) {
       for (const std::uint32_t key : command.keys) visit_number(visit, key);
     }>},
    {"command.queue", of_command_number<&StorageCommand::queue>},
    {"command.unit", of_command_number<&StorageCommand::unit>},
    {"command.block", of_command_number<&StorageCommand::block>},
    {"command.blocks", of_command_number<&StorageCommand::blocks>},
    {"command.file", of_command<[](const StorageCommand& command, const Visit& visit) {
       if (!command.file.empty()) visit_text(visit, command.file);
     }>},
    {"command.offset", of_command_number<&StorageCommand::offset>},
};

// --- Management datagrams ------------------------------------------------------------------------

template <std::string (*text)(const ManagementDatagram& datagram)>
void of_management(const Record& record, const Visit& visit) {
  if (record.management) visit_text(visit, text(*record.management));
}

constexpr Getter of_datagrams[] = {
    {"management.class", of_management<class_text>},
    {"management.method", of_management<method_text>},
    {"management.attribute", of_management<attribute_text>},
    {"management.status",
     [](const Record& record, const Visit& visit) {
       if (record.management) visit_number(visit, record.management->status);
     }},
};

// --- Findings ------------------------------------------------------------------------------------

using OfFinding = void (*)(const Finding& finding, const Visit& visit);

template <OfFinding get>
void of_finding(const Record& record, const Visit& visit) {
  if (record.finding) get(*record.finding, visit);
}

constexpr Getter of_findings[] = {
    {"finding.kind", of_finding<[](const Finding& finding, const Visit& visit) {
       visit_text(visit, finding.kind);
     }>},
    {"finding.severity", of_finding<[](const Finding& finding, const Visit& visit) {
       visit_text(visit, to_string(severity_of(finding)));
     }>},
    {"finding.sentence", of_finding<[](const Finding& finding, const Visit& visit) {
       visit_text(visit, finding.sentence);
     }>},
    {"finding.key", of_finding<[](const Finding& finding, const Visit& visit) {
       for (const std::uint32_t key : finding.keys) visit_number(visit, key);
     }>},
};

// The getters of all fields, in the order of filter_fields.
constexpr auto make_getters() {
  std::array<Getter, filter_fields.size()> all{};
  std::size_t at = 0;
  const auto add = [&](const auto& some) {
    for (const Getter& one : some) all.at(at++) = one;
  };
  add(of_all);
  add(of_operations);
  add(of_rpcs);
  add(of_commands);
  add(of_datagrams);
  add(of_findings);
  return all;
}
constexpr auto getters = make_getters();
static_assert(std::ranges::equal(getters, filter_fields, {}, &Getter::name, &FilterField::name));

}  // namespace

void visit_field(std::size_t field, const FilterRecord& record, const FilterVisitor& visit) {
  getters[field].values(record, visit);
}

}  // namespace weft::capture
