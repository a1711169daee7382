// Decodes the capsules of NVMe over RDMA (NVM Express over Fabrics 1.1, NVM Express Base 1.4).
#pragma once

#include <cstdint>
#include <optional>

#include "capture/storage/storage_message.h"

namespace weft::capture {

// Whether the message may be a command capsule, as far as its data pointer shows: fabrics require
// SGLs, with a keyed descriptor or an offset into the capsule.
[[nodiscard]] bool may_be_nvme_command(const StorageBytes& message);
// Whether the message is a Connect command, which is the first one on each queue.
[[nodiscard]] bool is_nvme_connect(const StorageBytes& message);
// The queue that a Connect command creates.
struct NvmeQueue {
  std::uint16_t number = 0;
  std::uint32_t entries = 0;
};
// Returns it, if the message is a Connect command and has these fields.
[[nodiscard]] std::optional<NvmeQueue> nvme_connected_queue(const StorageBytes& message);
// Returns the queue that the host names in the private data of its connection request (NVM Express
// RDMA Transport 1.0, figure 3); nullopt if they are of another format. Zeros at their end may be
// missing.
[[nodiscard]] std::optional<std::uint16_t> nvme_requested_queue(Bytes private_data);
// Whether the message may be a completion.
[[nodiscard]] bool may_be_nvme_completion(const StorageBytes& message);
// The command identifier, of a message for which one of the functions above returned true.
[[nodiscard]] std::uint16_t nvme_command_id(Bytes command);
[[nodiscard]] std::uint16_t nvme_completed_id(Bytes completion);

// Decodes a message of the host, and counts it. Admin and I/O queues use the same opcodes for
// different commands, so `queue` is needed for the name; a Connect command sets it.
[[nodiscard]] StorageMessage decode_nvme_command(const StorageBytes& message,
                                                 std::optional<std::uint16_t>& queue,
                                                 MessageCounts& counts);
// Decodes a message of the controller, and counts it. Its status has no text yet, because that
// depends on the command.
[[nodiscard]] StorageMessage decode_nvme_completion(const StorageBytes& message,
                                                    MessageCounts& counts);
// Returns "OK" or the text of an error. `command` is the name of the command that was answered.
[[nodiscard]] std::string nvme_status_text(std::uint32_t status, std::string_view command);

}  // namespace weft::capture
