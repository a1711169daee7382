// The texts with which reports describe commands of storage protocols.
#include <fmt/format.h>

#include "capture/text/units.h"
#include "weft/capture/storage.hpp"

namespace weft::capture {

const char* to_string(StorageProtocol protocol) {
  switch (protocol) {
    case StorageProtocol::smb_direct:
      return "SMB Direct";
    case StorageProtocol::nvme:
      return "NVMe over RDMA";
    case StorageProtocol::iser:
      return "iSER";
    case StorageProtocol::srp:
      return "SRP";
  }
  return "unknown";
}

const char* to_string(StorageCommand::Outcome outcome) {
  switch (outcome) {
    case StorageCommand::Outcome::succeeded:
      return "succeeded";
    case StorageCommand::Outcome::failed:
      return "failed";
    case StorageCommand::Outcome::unanswered:
      return "unanswered";
    case StorageCommand::Outcome::answer_only:
      return "answer_only";
  }
  return "unknown";
}

std::string describe(const StorageCommand& command) {
  const std::string_view name = command.name.empty() ? "command" : command.name;
  switch (command.protocol) {
    case StorageProtocol::nvme:
      return fmt::format("NVMe {}", name);
    case StorageProtocol::smb_direct:
      // The names of SMB have their protocol already.
      return command.name.empty() ? "SMB2 command" : std::string(name);
    case StorageProtocol::iser:
      return fmt::format("iSER {}", name);
    case StorageProtocol::srp:
      return fmt::format("SRP {}", name);
  }
  return std::string(name);
}

std::string detail_text(const StorageCommand& command) {
  std::string text;
  const auto add = [&text](const char* separator, const std::string& words) {
    if (!text.empty()) text += separator;
    text += words;
  };
  if (command.block) {
    if (command.blocks) add("", count_text(*command.blocks, "block"));
    add(" ", fmt::format("at LBA {}", *command.block));
  }
  if (!command.file.empty()) add("", fmt::format("\"{}\"", printable(command.file)));
  if (command.offset) add(" ", fmt::format("{} B at {}", command.bytes, *command.offset));
  if (!command.subject.empty()) add(", ", command.subject);
  if (command.unit) {
    const bool nvme = command.protocol == StorageProtocol::nvme;
    add(", ", fmt::format("{} {}", nvme ? "namespace" : "LUN", *command.unit));
  }
  return text;
}

std::string outcome_text(const StorageCommand& command) {
  if (!command.answer) return "no answer";
  if (!command.request) return command.status_text + " (the command was not captured)";
  return command.status_text;
}

}  // namespace weft::capture
