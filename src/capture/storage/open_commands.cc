#include "capture/storage/open_commands.h"

#include <algorithm>
#include <utility>

namespace weft::capture {

void OpenCommands::add(StorageCommand command) {
  const std::uint64_t place = next_++;
  by_id_[command.id] = place;
  // A key that an older command has too was granted anew: its transfers belong to this one.
  for (const std::uint32_t key : command.keys) by_key_[key] = place;
  by_age_.emplace(place, Open{.command = std::move(command)});
}

StorageCommand OpenCommands::remove(ByAge::iterator at) {
  for (const std::uint32_t key : at->second.command.keys) {
    const auto known = by_key_.find(key);
    if (known != by_key_.end() && known->second == at->first) by_key_.erase(known);
  }
  by_id_.erase(at->second.command.id);
  StorageCommand command = std::move(at->second.command);
  by_age_.erase(at);
  if (command.interim) --interims_;
  return command;
}

std::optional<StorageCommand> OpenCommands::take(std::uint64_t id) {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return std::nullopt;
  return remove(by_age_.find(known->second));
}

StorageCommand OpenCommands::take_oldest() {
  return remove(by_age_.begin());
}

void OpenCommands::note_interim(std::uint64_t id, const Stamp& stamp) {
  StorageCommand* const command = find(id);
  if (command == nullptr) return;
  if (!command->interim) ++interims_;
  command->interim = stamp;
}

StorageCommand* OpenCommands::find(std::uint64_t id) {
  const auto known = by_id_.find(id);
  return known == by_id_.end() ? nullptr : &by_age_.at(known->second).command;
}

void OpenCommands::note_transfer(std::uint32_t key, const Stamp& stamp) {
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) return;
  Open& open = by_age_.at(known->second);
  if (!open.transferred) {
    open.transferred = true;
    open.command.timing.transfer_from_ns = stamp.time_ns;
  }
  open.command.transfer_ns =
      std::max(open.command.transfer_ns, stamp.time_ns - open.command.timing.transfer_from_ns);
}

}  // namespace weft::capture
