#include "capture/rpc/nfs_images.h"

#include <algorithm>

#include "base/size.h"
#include "capture/text/units.h"

namespace weft::capture {
namespace {

// Returns the ranges without flaws.
std::vector<RangeSet::Range> sound_ranges(const Assembled& bytes) {
  RangeSet flawed;
  for (const FlawedRange& range : bytes.flaws()) flawed.add(range.begin, range.end);
  return flawed.missing(0, bytes.size());
}

Bytes part_of(const Assembled& bytes, const RangeSet::Range& range) {
  return bytes.bytes().subspan(to_size(range.first), to_size(range.second - range.first));
}

bool names_a_child(std::string_view name) {
  return name == "LOOKUP" || name == "CREATE" || name == "OPEN" || name == "MKDIR" ||
         name == "SYMLINK" || name == "MKNOD";
}

// Returns the size of the file that operation `at` has found, from its own result or from a later
// GETATTR in the same COMPOUND.
std::optional<std::uint64_t> size_after(const std::vector<NfsOperation>& operations,
                                        std::size_t at) {
  if (operations[at].file_size) return operations[at].file_size;
  for (std::size_t i = at + 1; i < operations.size(); ++i) {
    if (operations[i].name == "GETATTR" && operations[i].handle == operations[at].found) {
      return operations[i].file_size;
    }
  }
  return {};
}

}  // namespace

// Uses the operations that succeeded. A file that CREATE or OPEN leaves empty gets an image without
// bytes.
void NfsImages::add(const Rpc& rpc) {
  if (!rpc.nfs || !rpc.reply || rpc.nfs->callback) return;
  const auto& operations = rpc.nfs->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const NfsOperation& one = operations[i];
    if (!one.answered || one.status != 0) continue;
    follow_names(rpc.connection, one);
    operation(rpc, one);
    const bool opens = one.name == "CREATE" || one.name == "OPEN";
    if (opens && !one.found.empty() && size_after(operations, i) == 0) {
      begin_empty({rpc.connection, one.found}, rpc.reply->first.frame);
    }
  }
}

// --- Names ---------------------------------------------------------------------------------------

// Learns that `name` in `directory` is `handle`. If the table is full, it is cleared: names are a
// convenience, and the handle identifies the file.
void NfsImages::learn(ConnectionId connection, const FileHandle& directory, const std::string& name,
                      const FileHandle& handle) {
  if (handle.empty() || name.empty()) return;
  if (entries_.size() == max_entries) entries_.clear();
  entries_[{{connection, directory}, name}] = handle;
  auto& names = file_of({connection, handle}).names;
  if (names.size() == max_names || std::ranges::find(names, name) != names.end()) return;
  names.push_back(name);
}

// Follows the operations that create, remove or change names.
void NfsImages::follow_names(ConnectionId connection, const NfsOperation& operation) {
  if (names_a_child(operation.name)) {
    learn(connection, operation.handle, operation.entry, operation.found);
  } else if (operation.name == "READDIRPLUS") {
    for (const DirectoryEntry& entry : operation.entries) {
      if (entry.name == "." || entry.name == "..") continue;
      learn(connection, operation.handle, entry.name, entry.handle);
    }
  } else if (operation.name == "REMOVE" || operation.name == "RMDIR") {
    entries_.erase({{connection, operation.handle}, operation.entry});
  } else if (operation.name == "LINK") {
    // In version 4 LINK links the saved file into the current directory.
    const bool saved = !operation.saved.empty();
    learn(connection, operation.target_directory, operation.entry,
          saved ? operation.saved : operation.handle);
  } else if (operation.name == "RENAME") {
    rename(connection, operation);
  }
}

// The file keeps its images, and gets the new name as well.
void NfsImages::rename(ConnectionId connection, const NfsOperation& operation) {
  // In version 4 the saved handle is the directory of the old name.
  const FileHandle& from = operation.saved.empty() ? operation.handle : operation.saved;
  const auto entry = entries_.find({{connection, from}, operation.entry});
  if (entry == entries_.end()) return;
  const FileHandle handle = entry->second;
  entries_.erase(entry);
  learn(connection, operation.target_directory, operation.target, handle);
}

// --- Files ---------------------------------------------------------------------------------------

// Returns the file; if there are too many open ones, an eighth of them is closed first.
NfsImages::File& NfsImages::file_of(const FileKey& key) {
  auto found = files_.find(key);
  if (found == files_.end()) {
    if (files_.size() == max_files) close_oldest();
    found = files_.try_emplace(key).first;
  }
  found->second.used = ++uses_;
  return found->second;
}

// Closes the eighth that was used least recently, so that the search is rare.
void NfsImages::close_oldest() {
  std::vector<std::uint64_t> uses;
  for (const auto& [key, file] : files_) uses.push_back(file.used);
  const auto last = uses.begin() + max_files / 8;
  std::ranges::nth_element(uses, last);
  for (auto at = files_.begin(); at != files_.end();) {
    if (at->second.used >= *last) {
      ++at;
      continue;
    }
    close(at->first, at->second);
    at = files_.erase(at);
  }
}

// Different files may have the same name. The first image of each direction shows whether the stem
// is in use.
bool NfsImages::taken(const std::string& stem) const {
  constexpr const char* first_images[] = {".written.1", ".read.1", ".written.1.incomplete",
                                          ".read.1.incomplete"};
  return std::ranges::any_of(first_images,
                             [&](const char* image) { return directory_.contains(stem + image); });
}

// --- Bytes ---------------------------------------------------------------------------------------

void NfsImages::operation(const Rpc& rpc, const NfsOperation& operation) {
  const FileKey key{rpc.connection, operation.handle};
  const std::uint64_t frame = rpc.reply->first.frame;
  if (operation.name == "WRITE") place(key, Direction::written, operation, frame);
  if (operation.name == "READ") place(key, Direction::read, operation, frame);
  if (operation.name == "SETATTR" && operation.new_size) {
    set_size(key, *operation.new_size, frame);
  }
}

// Begins the first image of one direction, and chooses the file name if there is none yet.
void NfsImages::begin(const FileKey& key, File& file, Direction direction, std::uint64_t frame) {
  if (file.stem.empty()) {
    const std::string name =
        file.names.empty() ? to_hex(key.second) : std::string(file.names.front());
    const std::string wanted =
        fmt::format("nfs/{}/{}", std::uint64_t{key.first} + 1, safe_file_name(name));
    file.stem = wanted;
    for (unsigned i = 2; taken(file.stem); ++i) file.stem = fmt::format("{}~{}", wanted, i);
  }
  Image& one = image(file, direction);
  one.number = 1;
  one.path =
      fmt::format("{}.{}.1", file.stem, direction == Direction::written ? "written" : "read");
  one.first_frame = frame;
  directory_.write(one.path, {});
}

// Begins the next image as a copy of the current one, and closes that one.
void NfsImages::begin_next(const FileKey& key, File& file, Direction direction) {
  Image& one = image(file, direction);
  Image before = one;
  const std::string stem = one.path.substr(0, one.path.rfind('.') + 1);
  one.path = fmt::format("{}{}", stem, ++one.number);
  directory_.copy(before.path, one.path);
  close(key, file, direction, before);
}

// Begins the image of a new file that nothing was written to yet.
void NfsImages::begin_empty(const FileKey& key, std::uint64_t frame) {
  File& file = file_of(key);
  if (!file.written.path.empty()) return;
  begin(key, file, Direction::written, frame);
  file.written.last_frame = frame;
}

// Returns whether `bytes` differ from bytes that the image has already.
bool NfsImages::changes(const Image& image, std::uint64_t offset, Bytes bytes) const {
  // The image is read back from its file, so its bytes need no memory in between.
  std::vector<std::byte> there;
  for (const auto& [begin, end] : image.have.within(offset, offset + bytes.size())) {
    there.resize(to_size(end - begin));
    directory_.read_at(image.path, begin, there);
    if (!std::ranges::equal(there, bytes.subspan(to_size(begin - offset), there.size())))
      return true;
  }
  return false;
}

// Stores the bytes of a WRITE or READ. Only sound bytes count: a flaw must not begin a new image.
void NfsImages::place(const FileKey& key, Direction direction, const NfsOperation& operation,
                      std::uint64_t frame) {
  const Assembled& bulk = operation.bulk;
  const std::uint64_t end = operation.offset + bulk.size();
  // The offset comes from the wire, so the sum may wrap.
  if (end < operation.offset || end > max_file_bytes) return;
  File& file = file_of(key);
  Image& one = image(file, direction);
  if (one.path.empty()) begin(key, file, direction, frame);
  const auto ranges = sound_ranges(bulk);
  const bool changed = std::ranges::any_of(ranges, [&](const RangeSet::Range& range) {
    return changes(one, operation.offset + range.first, part_of(bulk, range));
  });
  if (changed) {
    begin_next(key, file, direction);
    one.first_frame = frame;
  }
  for (const RangeSet::Range& range : ranges) {
    directory_.write_at(one.path, operation.offset + range.first, part_of(bulk, range));
    one.have.add(operation.offset + range.first, operation.offset + range.second);
  }
  one.size = std::max(one.size, end);
  if (direction == Direction::read && operation.end_of_file) one.size_known = true;
  one.last_frame = frame;
}

// Applies SETATTR with a size to both images.
void NfsImages::set_size(const FileKey& key, std::uint64_t size, std::uint64_t frame) {
  if (size > max_file_bytes) return;
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  File& file = found->second;
  for (const Direction direction : {Direction::written, Direction::read}) {
    Image& one = image(file, direction);
    if (one.path.empty() || one.size == size) continue;
    // An empty image need not be kept.
    if (one.size > 0) {
      begin_next(key, file, direction);
      one.first_frame = frame;
    }
    directory_.resize(one.path, size);
    one.have.cut_to(size);
    one.have.add(one.size, size);  // zeros, if the file grows
    one.size = size;
    one.size_known = true;
    one.last_frame = frame;
  }
}

// --- Ends ----------------------------------------------------------------------------------------

// Sets the final size, marks incomplete images by their names, and writes the entry in the index.
void NfsImages::close(const FileKey& key, const File& file, Direction direction, Image& image) {
  const auto missing = image.have.missing(0, image.size);
  const bool whole = missing.empty() && (direction == Direction::written || image.size_known);
  directory_.resize(image.path, image.size);
  if (!whole) {
    directory_.rename(image.path, image.path + ".incomplete");
    image.path += ".incomplete";
  }
  JsonLine line = directory_.begin_entry(image.path, "nfs");
  line.number("connection", std::uint64_t{key.first} + 1);
  line.text("direction", direction == Direction::written ? "written" : "read");
  line.text("handle", to_hex(key.second)).array("names");
  for (const std::string& name : file.names) line.item(std::string_view(printable(name)));
  line.close(']').number("image", image.number).number("bytes", image.size);
  line.number("first_frame", image.first_frame).number("last_frame", image.last_frame);
  line.boolean("complete", whole);
  if (direction == Direction::read) line.boolean("end_seen", image.size_known);
  line.array("missing");
  for (const auto& [begin, end] : missing) {
    line.element().number("begin", begin).number("end", end).close();
  }
  line.close(']');
  directory_.end_entry(line);
}

void NfsImages::close(const FileKey& key, File& file) {
  for (const Direction direction : {Direction::written, Direction::read}) {
    Image& one = image(file, direction);
    if (!one.path.empty()) close(key, file, direction, one);
  }
}

void NfsImages::forget(ConnectionId connection) {
  // An empty handle sorts before all others, so these two keys enclose those of the connection.
  const FileKey begin{connection, {}};
  const FileKey end{connection + 1, {}};
  const auto files_end = files_.lower_bound(end);
  for (auto at = files_.lower_bound(begin); at != files_end; ++at) close(at->first, at->second);
  files_.erase(files_.lower_bound(begin), files_end);
  entries_.erase(entries_.lower_bound({begin, {}}), entries_.lower_bound({end, {}}));
}

void NfsImages::finish() {
  for (auto& [key, file] : files_) close(key, file);
  files_.clear();
}

}  // namespace weft::capture
