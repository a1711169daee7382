// The fields that a filter expression can name, with their meaning. `weft help filters` prints this
// table, so it needs nothing else of the analysis.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft::capture {

struct FilterField {
  enum class Type : std::uint8_t {
    number,   // an integer, or a number of bytes
    time,     // a duration in nanoseconds
    text,     // any text
    word,     // one of `words`
    level,    // one of `words`, which are ascending
    address,  // of a host
  };

  std::string_view name;
  Type type = Type::number;
  std::string_view of;  // the records that have it
  std::string_view meaning;
  std::string_view words{};  // of the types word and level, separated by spaces
};

inline constexpr std::array filter_fields{
    FilterField{"connection", FilterField::Type::number, "all but management datagrams",
                "number of the connection, from 1"},
    FilterField{"transport", FilterField::Type::word, "all but management datagrams",
                "transport of the connection", "iwarp rc uc ud rd xrc"},
    FilterField{"peer", FilterField::Type::address, "all", "address of either end"},
    FilterField{"port", FilterField::Type::number, "all, of iWARP", "TCP port of either end"},
    FilterField{"qp", FilterField::Type::number, "all, of InfiniBand",
                "queue pair number of either end"},
    FilterField{"frame", FilterField::Type::number, "all",
                "first frame; of a finding, each of its frames"},
    FilterField{"time", FilterField::Type::time, "all", "time of that frame since the first frame"},
    FilterField{"requester", FilterField::Type::address, "operations, RPCs, commands",
                "address of the side that sent the request, call or command"},
    FilterField{"responder", FilterField::Type::address, "operations, RPCs, commands",
                "address of the other side"},
    FilterField{"connection.end", FilterField::Type::word, "connections", "how it ended",
                "open half-open closed reset terminated rejected unanswered forgotten"},
    FilterField{"connection.frames", FilterField::Type::number, "connections", "number of frames"},
    FilterField{"operation.kind", FilterField::Type::word, "operations, messages", "kind",
                "send write read fetch_add compare_swap atomic immediate"},
    FilterField{"operation.bytes", FilterField::Type::number, "operations, messages",
                "payload; of a Read, that of the response"},
    FilterField{"operation.key", FilterField::Type::number, "operations, messages",
                "key of the remote memory, or the key that a Send invalidates"},
    FilterField{"operation.address", FilterField::Type::number, "operations, messages",
                "address in the remote memory"},
    FilterField{"operation.latency", FilterField::Type::time, "operations",
                "time until the response or the acknowledgement"},
    FilterField{"operation.outcome", FilterField::Type::word, "operations", "how it ended",
                "complete incomplete unanswered refused"},
    FilterField{"operation.not_ready", FilterField::Type::number, "operations",
                "number of RNR NAKs that it met"},
    FilterField{"rpc.xid", FilterField::Type::number, "RPCs, findings about one", "XID"},
    FilterField{"rpc.program", FilterField::Type::text, "RPCs", "program, such as NFS or 100003"},
    FilterField{"rpc.version", FilterField::Type::number, "RPCs", "version of the program"},
    FilterField{"rpc.procedure", FilterField::Type::text, "RPCs",
                "procedure, such as WRITE, or its number; of a COMPOUND, each of its operations"},
    FilterField{"rpc.status", FilterField::Type::text, "RPCs",
                "outcome, such as OK, NFS3ERR_NOENT or \"no reply\""},
    FilterField{"rpc.latency", FilterField::Type::time, "RPCs", "time from the call to the reply"},
    FilterField{"rpc.transfer", FilterField::Type::time, "RPCs",
                "of the latency, the time in which chunks were transferred"},
    FilterField{"rpc.held", FilterField::Type::time, "RPCs",
                "before the call, the wait for a credit or a slot"},
    FilterField{"rpc.bytes", FilterField::Type::number, "RPCs",
                "bytes of the call and the reply, with their chunks"},
    FilterField{"rpc.retransmissions", FilterField::Type::number, "RPCs",
                "how often the call was sent again"},
    FilterField{"rpc.key", FilterField::Type::number, "RPCs", "key of each segment of its chunks"},
    FilterField{"rpc.uid", FilterField::Type::number, "RPCs with AUTH_SYS", "user of the caller"},
    FilterField{"nfs.name", FilterField::Type::text, "RPCs of NFS",
                "name of a file, and the new name of a RENAME"},
    FilterField{"nfs.offset", FilterField::Type::number, "RPCs of NFS",
                "offset of READ, WRITE and others"},
    FilterField{"nfs.count", FilterField::Type::number, "RPCs of NFS",
                "number of bytes of READ, WRITE and others"},
    FilterField{"nfs.slot", FilterField::Type::number, "RPCs of NFS 4.1 and later",
                "slot of the session"},
    FilterField{"command.protocol", FilterField::Type::word, "commands",
                "protocol that carries the command", "nvme smb iser srp"},
    FilterField{"command.name", FilterField::Type::text, "commands",
                "name, such as read, SMB2 WRITE or READ(10)"},
    FilterField{"command.outcome", FilterField::Type::word, "commands", "how it ended",
                "succeeded failed unanswered answer_only"},
    FilterField{"command.status", FilterField::Type::text, "commands",
                "status, such as OK or STATUS_ACCESS_DENIED"},
    FilterField{"command.latency", FilterField::Type::time, "commands",
                "time from the command to the answer"},
    FilterField{"command.transfer", FilterField::Type::time, "commands",
                "of the latency, the time in which its data were transferred"},
    FilterField{"command.held", FilterField::Type::time, "commands",
                "before the command, the wait for credits or for room in the queue"},
    FilterField{"command.bytes", FilterField::Type::number, "commands",
                "bytes of data that it requests to transfer"},
    FilterField{"command.id", FilterField::Type::number, "commands",
                "command identifier, MessageId or task tag"},
    FilterField{"command.key", FilterField::Type::number, "commands",
                "each key of memory that it grants"},
    FilterField{"command.queue", FilterField::Type::number, "commands of NVMe",
                "queue; 0 is the admin queue"},
    FilterField{"command.unit", FilterField::Type::number, "commands on blocks",
                "namespace, or logical unit"},
    FilterField{"command.block", FilterField::Type::number, "commands on blocks",
                "first logical block"},
    FilterField{"command.blocks", FilterField::Type::number, "commands on blocks",
                "number of blocks"},
    FilterField{"command.file", FilterField::Type::text, "commands of SMB",
                "name of the file or share"},
    FilterField{"command.offset", FilterField::Type::number, "commands of SMB",
                "offset in the file, of READ and WRITE"},
    FilterField{"management.class", FilterField::Type::text, "management datagrams",
                "class, such as ComMgt or SubnAdm"},
    FilterField{"management.method", FilterField::Type::text, "management datagrams",
                "method, such as Send or Get"},
    FilterField{"management.attribute", FilterField::Type::text, "management datagrams",
                "attribute, such as REQ or PathRecord"},
    FilterField{"management.status", FilterField::Type::number, "management datagrams",
                "status; 0 is success"},
    FilterField{"finding.kind", FilterField::Type::text, "findings", "kind, such as not-captured"},
    FilterField{"finding.severity", FilterField::Type::level, "findings", "severity",
                "note warning error"},
    FilterField{"finding.sentence", FilterField::Type::text, "findings", "the sentence"},
    FilterField{"finding.key", FilterField::Type::number, "findings",
                "each key that the finding is about"},
};

}  // namespace weft::capture
