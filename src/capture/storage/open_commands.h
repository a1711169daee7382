// The commands of one connection that wait for their answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "weft/capture/storage.hpp"

namespace weft::capture {

class OpenCommands {
 public:
  // Keeps a command. It must not have the id of one that is kept.
  void add(StorageCommand command);
  // Removes the command with this id; nullopt if there is none.
  std::optional<StorageCommand> take(std::uint64_t id);
  // Removes the oldest one; there must be one.
  StorageCommand take_oldest();
  // Notes the server's interim answer: the command with this id takes longer.
  void note_interim(std::uint64_t id, const Stamp& stamp);
  // Returns nullptr if there is none with this id.
  [[nodiscard]] StorageCommand* find(std::uint64_t id);
  // Notes that data of the command with this key were transferred in a packet.
  void note_transfer(std::uint32_t key, const Stamp& stamp);
  [[nodiscard]] std::size_t size() const { return by_age_.size(); }
  // Returns the number of those for which the server has not said that they take longer. Requests
  // for events may wait for ever.
  [[nodiscard]] std::size_t size_without_interim() const { return by_age_.size() - interims_; }

 private:
  struct Open {
    StorageCommand command;
    bool transferred = false;
  };
  using ByAge = std::map<std::uint64_t, Open>;  // by the order in which they came

  StorageCommand remove(ByAge::iterator at);

  ByAge by_age_;
  std::uint64_t next_ = 0;
  std::size_t interims_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> by_id_;   // id to place in by_age_
  std::unordered_map<std::uint32_t, std::uint64_t> by_key_;  // key to place in by_age_
};

}  // namespace weft::capture
