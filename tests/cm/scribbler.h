// Changes what this process shares with others of its host, while they use it: the hostile half of
// hostile_process.cc.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "cm/hostile_process.h"
#include "device/local/grant_table.h"
#include "device/local/inbox.h"
#include "support/random.h"

namespace weft::cm::hostile {

// The lists of this process's own copies stay as they are: the kernel would copy to any place in
// the other process, as it would for a debugger. Thread-safe is own(); one thread calls the others.
class Scribbler {
 public:
  // `loot`: memory of this process, where crafted requests want bytes to go.
  Scribbler(std::uint64_t seed, const Granted& victim, const Granted& loot)
      : random_(seed), victim_(victim), loot_(loot) {}

  // A queue pair of this process, whose inbox the other process copies by.
  void own(std::uint32_t queue_pair);
  // Finds the files of memory that this process shares by now. Returns how many it knows.
  std::size_t look();
  // Makes one change, which mostly lasts for a moment only.
  void change();
  // Whether the secret is in memory that is shared.
  [[nodiscard]] bool holds_secret() const;

 private:
  enum class Kind : std::uint8_t { inboxes, grants, counts, bells };
  // A mapping of its own, which stays when the device gives its own up.
  struct Area {
    Kind kind{};
    std::uint64_t file = 0;
    std::byte* at = nullptr;
    std::size_t bytes = 0;
  };
  using Inbox = device::inbox::Inbox;

  void add(Kind kind, std::uint64_t file, std::byte* at, std::size_t bytes);
  void change_inbox(const Area& area);
  void change_grants(const Area& area);
  void change_word(Inbox& inbox);
  void change_slot(Inbox& inbox);
  void change_copy(Inbox& inbox);
  void craft(Inbox& inbox);
  void flicker(std::byte* at, std::size_t bytes);
  [[nodiscard]] std::uint64_t value(std::uint64_t likely);
  [[nodiscard]] std::uint64_t target();
  [[nodiscard]] bool is_own(const Inbox& inbox);

  test::Random random_;
  const Granted victim_;
  const Granted loot_;
  std::vector<Area> areas_;
  std::mutex mutex_;
  std::vector<std::uint32_t> own_;
};

}  // namespace weft::cm::hostile
