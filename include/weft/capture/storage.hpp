// Commands of storage protocols over RDMA: NVMe over RDMA (NVM Express RDMA Transport), SMB Direct
// (MS-SMBD) with SMB 2 and 3 in it (MS-SMB2), iSER (RFC 7145) and SRP (INCITS 365).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

enum class StorageProtocol : std::uint8_t { smb_direct, nvme, iser, srp };
// Returns "NVMe over RDMA", "SMB Direct", "iSER" or "SRP".
[[nodiscard]] WEFT_API const char* to_string(StorageProtocol protocol);

// One command with its answer, or as much of both as was captured.
struct StorageCommand {
  enum class Outcome : std::uint8_t {
    succeeded,
    failed,       // the answer has the status of an error
    unanswered,   // no answer was captured
    answer_only,  // the command was not captured
  };
  struct Timing {
    std::int64_t transfer_from_ns = 0;  // time of the first packet of transfer_ns, if that is not 0
    // Before the command: since the previous answer, if no other command was without an answer
    // meanwhile.
    std::int64_t idle_ns = 0;
    // Before the command: how long the requester at most waited because its queue was full (NVMe),
    // or because it had too few credits of SMB 2 or of SMB Direct.
    std::int64_t queue_ns = 0;
    std::int64_t credits_ns = 0;
    // Of the latency: how long either side at most waited for credits of SMB Direct, and the frame
    // that granted the last of them.
    std::int64_t receives_ns = 0;
    std::uint64_t receives_frame = 0;
  };

  std::uint64_t number = 0;  // position in the order of the reports, from 1
  StorageProtocol protocol = StorageProtocol::nvme;
  ConnectionId connection = 0;
  Side requester = Side::a;
  Outcome outcome = Outcome::unanswered;
  // The command identifier of NVMe, MessageId of SMB, initiator task tag of iSCSI or tag of SRP.
  std::uint64_t id = 0;
  // In static storage: "read", "SMB2 WRITE", "READ(10)". Empty without the command.
  std::string_view name;
  std::optional<Stamp> request;  // frame with the first part of the command
  std::optional<Stamp> answer;   // frame with the first part of the final answer
  // SMB: the frame with the interim answer, after which the command continued on the server.
  std::optional<Stamp> interim;
  Stamp last;  // frame with the last part of the answer, or of the command where that is later
  std::int64_t latency_ns = -1;  // from the command to the answer, or -1
  // The part of the latency from the first to the last RDMA packet with the command's data.
  std::int64_t transfer_ns = 0;
  Timing timing;
  std::uint64_t bytes = 0;  // of data, as the command requests them; 0 if it does not say

  std::uint32_t status = 0;  // as on the wire; 0 without an answer
  std::string status_text;   // "OK", "LBA out of range", "STATUS_ACCESS_DENIED"

  // What the command is about, as far as its kind has it.
  std::optional<std::uint16_t> queue;  // NVMe: 0 is the admin queue
  std::optional<std::uint32_t> unit;   // namespace, or logical unit
  std::optional<std::uint64_t> block;  // first logical block
  std::optional<std::uint64_t> blocks;
  std::optional<std::uint64_t> offset;  // SMB: in the file, in bytes
  std::string file;                     // SMB: a file or share, as it was opened; UTF-8
  std::string subject;                  // of other commands, such as "controller" of an identify
  // Keys of the requester's memory that the command grants.
  std::vector<std::uint32_t> keys;
};

// Returns the name with its protocol: "NVMe read", "SMB2 WRITE", "iSER READ(10)"; "NVMe command"
// without the command.
[[nodiscard]] WEFT_API std::string describe(const StorageCommand& command);
// Returns what the command is about: "8 blocks at LBA 1000, namespace 1". Empty if nothing is
// known.
[[nodiscard]] WEFT_API std::string detail_text(const StorageCommand& command);
// Returns the text of the status, "no answer", or that the command is missing.
[[nodiscard]] WEFT_API std::string outcome_text(const StorageCommand& command);
// The frame with which it begins: that of the command, or of the answer without it.
[[nodiscard]] inline const Stamp& first_stamp(const StorageCommand& command) {
  return command.request ? *command.request : *command.answer;
}
// Returns the name of the enumerator, such as "answer_only". The text is in static storage.
[[nodiscard]] WEFT_API const char* to_string(StorageCommand::Outcome outcome);

class StorageSink {
 public:
  virtual ~StorageSink() = default;
  // Receives commands in the order of their answers; those without one when their connection ends,
  // or when too many are open. `command` is valid during the call only.
  virtual void on_command(const StorageCommand& command) = 0;
};

// The number of messages by type; the names are in static storage: "negotiate request", "read",
// "completion".
using MessageCounts = std::map<std::string_view, std::uint64_t>;

// What is known of a connection that carries a storage protocol.
struct StorageTraffic {
  StorageProtocol protocol = StorageProtocol::nvme;
  MessageCounts messages;
};

}  // namespace weft::capture
