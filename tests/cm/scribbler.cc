#include "cm/scribbler.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "base/pause.h"
#include "device/local/inbox_pool.h"

namespace weft::cm::hostile {
namespace {

namespace inbox = device::inbox;

constexpr std::size_t most_areas = 24;
// Of each queue pair of this program.
constexpr std::uint32_t receives = 16;

template <typename T>
void store(std::byte* at, std::uint64_t value) {
  std::atomic_ref(*std::launder(reinterpret_cast<T*>(at))).store(static_cast<T>(value));
}

template <typename T>
std::uint64_t load(std::byte* at) {
  return std::atomic_ref(*std::launder(reinterpret_cast<T*>(at))).load();
}

void store_bytes(std::byte* at, std::uint64_t value, std::size_t bytes) {
  bytes == 8   ? store<std::uint64_t>(at, value)
  : bytes == 4 ? store<std::uint32_t>(at, value)
  : bytes == 2 ? store<std::uint16_t>(at, value)
               : store<std::uint8_t>(at, value);
}

std::uint64_t load_bytes(std::byte* at, std::size_t bytes) {
  return bytes == 8   ? load<std::uint64_t>(at)
         : bytes == 4 ? load<std::uint32_t>(at)
         : bytes == 2 ? load<std::uint16_t>(at)
                      : load<std::uint8_t>(at);
}

}  // namespace

// --- Finding -------------------------------------------------------------------------------------

// mremap(2): with an old size of 0 it makes a second mapping of the same shared pages. The device
// may have given up the first one meanwhile; then there is none.
void Scribbler::add(Kind kind, std::uint64_t file, std::byte* at, std::size_t bytes) {
  void* const copy = mremap(at, 0, bytes, MREMAP_MAYMOVE);
  if (copy == MAP_FAILED) return;
  if (areas_.size() == most_areas) {
    munmap(areas_.front().at, areas_.front().bytes);
    areas_.erase(areas_.begin());
  }
  areas_.push_back({kind, file, static_cast<std::byte*>(copy), bytes});
}

std::size_t Scribbler::look() {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  std::array<char, 512> line;
  while (maps && std::fgets(line.data(), line.size(), maps)) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    std::uint64_t file = 0;
    std::array<char, 5> rights{};
    std::array<char, 64> name{};
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64 " %63s", &from,
                    &to, rights.data(), &file, name.data()) != 5) {
      continue;
    }
    const std::string_view called(name.data());
    if (!called.starts_with("/memfd:weft-") || std::string_view(rights.data()) != "rw-s") continue;
    bool known = false;
    for (const Area& area : areas_) known = known || area.file == file;
    if (known) continue;
    const std::string_view of = called.substr(std::string_view("/memfd:weft-").size());
    const Kind kind = of.starts_with("inbox")    ? Kind::inboxes
                      : of.starts_with("grants") ? Kind::grants
                      : of.starts_with("bells")  ? Kind::bells
                                                 : Kind::counts;
    add(kind, file, reinterpret_cast<std::byte*>(from), to - from);
  }
  if (maps) std::fclose(maps);
  return areas_.size();
}

void Scribbler::own(std::uint32_t queue_pair) {
  const std::lock_guard lock(mutex_);
  own_.push_back(queue_pair);
}

bool Scribbler::is_own(const Inbox& inbox) {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(own_, inbox.queue_pair) != own_.end();
}

bool Scribbler::holds_secret() const {
  for (const Area& area : areas_) {
    if (area.kind != Kind::inboxes) continue;
    const std::size_t step = sizeof secret;
    for (std::size_t at = 0; at + step <= area.bytes; at += step) {
      if (std::memcmp(area.at + at, &secret, step) == 0) return true;
    }
  }
  return false;
}

// --- Changing ------------------------------------------------------------------------------------

std::uint64_t Scribbler::value(std::uint64_t likely) {
  const std::array<std::uint64_t, 12> edges{0,
                                            1,
                                            likely + 1,
                                            likely - 1,
                                            likely ^ (std::uint64_t{1} << random_.below(64)),
                                            likely + 4096,
                                            UINT32_MAX,
                                            UINT64_MAX,
                                            std::uint64_t{1} << 31,
                                            UINT64_MAX - 4095,
                                            target(),
                                            random_.next()};
  return edges[random_.below(edges.size())];
}

// An address of the other process, at the edges of what it grants and beside it.
std::uint64_t Scribbler::target() {
  const std::array<std::uint64_t, 6> edges{victim_.address,
                                           victim_.address - 8,
                                           victim_.address + victim_.length_bytes - 4,
                                           victim_.address + victim_.length_bytes,
                                           victim_.other_address,
                                           victim_.other_address - 4096};
  return edges[random_.below(edges.size())];
}

// What was there comes back, so that the connection goes on: the other process has to be caught
// between a check and a use. Now and then it stays.
void Scribbler::flicker(std::byte* at, std::size_t bytes) {
  const std::uint64_t before = load_bytes(at, bytes);
  const std::uint64_t other = value(before);
  const bool stays = random_.chance(50);
  for (std::uint64_t times = 1 + random_.below(8); times > 0; --times) {
    store_bytes(at, other, bytes);
    for (std::uint64_t i = random_.below(400); i > 0; --i) pause_processor();
    if (stays) return;
    store_bytes(at, before, bytes);
    for (std::uint64_t i = random_.below(100); i > 0; --i) pause_processor();
  }
}

void Scribbler::change() {
  if (areas_.empty()) return;
  const Area& area = areas_[random_.below(areas_.size())];
  switch (area.kind) {
    case Kind::inboxes:
      return change_inbox(area);
    case Kind::grants:
      return change_grants(area);
    case Kind::counts:
    case Kind::bells:
      return flicker(area.at + random_.below(area.bytes / 8) * 8, 8);
  }
}

void Scribbler::change_inbox(const Area& area) {
  const std::size_t stride = device::InboxFile::stride(receives);
  const std::size_t count = std::max<std::size_t>(area.bytes / stride, 1);
  auto& one = *std::launder(reinterpret_cast<Inbox*>(area.at + random_.below(count) * stride));
  switch (random_.below(10)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      return change_word(one);
    case 5:
    case 6:
      return change_slot(one);
    case 7:
    case 8:
      return is_own(one) ? change_copy(one) : change_word(one);
    default:
      return craft(one);
  }
}

void Scribbler::change_word(Inbox& inbox) {
  const std::size_t bytes = random_.chance(2) ? 4 : 8;
  const std::size_t all = offsetof(Inbox, near) + sizeof inbox.near;
  const std::size_t into = random_.below(all / bytes) * bytes;
  const std::size_t list = offsetof(Inbox, copy) + offsetof(inbox::Copy, pieces);
  const bool listed = into + bytes > list && into < list + sizeof inbox.copy.pieces;
  if (!listed || is_own(inbox)) flicker(reinterpret_cast<std::byte*>(&inbox) + into, bytes);
}

// The slot that is read next, or one behind it: its header, and the request in it.
void Scribbler::change_slot(Inbox& inbox) {
  const std::uint64_t number = inbox.consumed.load() + random_.below(3);
  inbox::Slot& slot = inbox.ring[number % inbox::slots];
  constexpr std::array<std::size_t, 4> sizes{1, 2, 4, 8};
  const std::size_t bytes = sizes[random_.below(sizes.size())];
  flicker(slot.data.data() + random_.below(104 / bytes) * bytes, bytes);
}

// The list that the kernel reads, while it copies.
void Scribbler::change_copy(Inbox& inbox) {
  const bool few = random_.chance(2);
  auto* const list =
      reinterpret_cast<std::byte*>(few ? inbox.copy.pieces.data() : inbox.copy_pieces.data());
  flicker(list + random_.below((few ? 4 : 16) * 2) * 8, 8);
}

// An entry of the table of what this process grants.
void Scribbler::change_grants(const Area& area) {
  using device::Grant;
  constexpr std::size_t looks = 4096;
  const std::size_t entries = area.bytes / sizeof(Grant);
  std::size_t at = random_.below(entries);
  for (std::size_t i = 0; i < looks; ++i, at = (at + 1) % entries) {
    auto* const grant = area.at + at * sizeof(Grant);
    if (load<std::uint32_t>(grant) == 0) continue;
    const std::size_t bytes = random_.chance(2) ? 4 : 8;
    return flicker(grant + random_.below(sizeof(Grant) / bytes) * bytes, bytes);
  }
}

// A whole message, where the reader expects the next one: a request for memory that was not
// granted, or that was granted in part. The bytes are to go to, or to come from, the loot.
void Scribbler::craft(Inbox& inbox) {
  const std::uint64_t position = inbox.consumed.load();
  inbox::Slot& slot = inbox.ring[position % inbox::slots];
  const bool other = random_.chance(3);
  inbox::MessageHeader header{.kind = static_cast<inbox::Kind>(random_.below(5)),
                              .flags = static_cast<std::uint8_t>(random_.below(32)),
                              .slots = 1,
                              .length_bytes = static_cast<std::uint32_t>(value(64)),
                              .rkey = victim_.rkey};
  if (random_.chance(2)) header.kind = inbox::Kind::request;
  const inbox::AccessRequest request{
      .number = 1 + random_.below(8),
      .operation = static_cast<iwarp::Operation>(random_.below(9)),
      .flags = static_cast<std::uint8_t>(random_.below(32)),
      .pieces = static_cast<std::uint16_t>(random_.chance(4) ? random_.next() : 1),
      .stag = other ? victim_.other_key : victim_.rkey,
      .offset = target(),
      .length_bytes = 8 * random_.below(600)};
  const inbox::Piece piece{loot_.address, request.length_bytes};
  std::byte* const at = slot.data.data();
  std::memcpy(at, &header, sizeof header);
  std::memcpy(at + sizeof header, &request, sizeof request);
  std::memcpy(at + sizeof header + sizeof request, &piece, sizeof piece);
  slot.stamp.store(position + 1);
  // Between what was checked and what is used.
  flicker(at + sizeof header + offsetof(inbox::AccessRequest, stag), 4);
  flicker(at + sizeof header + offsetof(inbox::AccessRequest, offset), 8);
  flicker(at + sizeof header + offsetof(inbox::AccessRequest, length_bytes), 8);
}

}  // namespace weft::cm::hostile
