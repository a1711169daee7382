#include "capture/rpc/extraction.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace weft::capture {
namespace {

// Linux limits a file name to 255 bytes (NAME_MAX), so there is room for prefixes and suffixes.
constexpr std::size_t max_name_bytes = 120;

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

class File {
 public:
  File(const std::string& path, int flags) : path_(path) {
    constexpr mode_t mode = 0644;
    // O_NOFOLLOW: a symbolic link with the name of an extracted file must not redirect the write.
    descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
    if (descriptor_ < 0) fail(path);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(descriptor_); }

  void write_at(std::uint64_t offset, Bytes bytes) const {
    while (!bytes.empty()) {
      const auto written =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0) fail(path_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
  }
  void read_at(std::uint64_t offset, MutableBytes out) const {
    while (!out.empty()) {
      const auto read = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
      if (read < 0) fail(path_);
      // pread(2) returns 0 at the end of the file, and does not set errno.
      if (read == 0) {
        throw std::system_error(
            std::make_error_code(std::errc::io_error),
            fmt::format("{}: the file ends before byte {}", path_, offset + out.size()));
      }
      out = out.subspan(static_cast<std::size_t>(read));
      offset += static_cast<std::uint64_t>(read);
    }
  }

  struct Stretch {
    std::uint64_t begin;
    std::uint64_t end;
  };
  // Returns the first range from `offset` on that is not a hole of the file; nothing if there is
  // none.
  [[nodiscard]] std::optional<Stretch> next_data(std::uint64_t offset) const {
    const off_t begin = ::lseek(descriptor_, static_cast<off_t>(offset), SEEK_DATA);
    // lseek(2): ENXIO from SEEK_DATA means that there is no data from the offset to the end.
    if (begin < 0 && errno == ENXIO) return {};
    const off_t end = begin < 0 ? begin : ::lseek(descriptor_, begin, SEEK_HOLE);
    if (end < 0) fail(path_);
    return Stretch{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
  }

 private:
  std::string path_;
  int descriptor_;
};

// Returns whether a character is kept. A leading dot is encoded, so that no name becomes "." or
// ".." or hidden.
bool is_kept(char character, bool first) {
  const bool letter = (character >= 'a' && character <= 'z') ||
                      (character >= 'A' && character <= 'Z') ||
                      (character >= '0' && character <= '9');
  return letter || character == '-' || character == '_' || (character == '.' && !first);
}

}  // namespace

std::string safe_file_name(std::string_view name) {
  std::string safe;
  for (const char character : name) {
    // An encoded character takes three bytes, so the name ends while one still fits.
    if (safe.size() + 3 > max_name_bytes) break;
    if (is_kept(character, safe.empty()))
      safe += character;
    else
      safe += fmt::format("%{:02X}", static_cast<unsigned char>(character));
  }
  return safe.empty() ? "nameless" : safe;
}

// An empty directory ensures that the index describes all files in it and that none is replaced.
ExtractionDirectory::ExtractionDirectory(std::string path) : path_(std::move(path)) {
  std::filesystem::create_directories(path_);
  if (!std::filesystem::is_empty(path_)) {
    throw std::runtime_error(path_ + ": the directory is not empty");
  }
}

void ExtractionDirectory::make_parents(const std::string& relative) const {
  std::filesystem::create_directories(std::filesystem::path(absolute(relative)).parent_path());
}

// O_EXCL: a file that exists is an error and is not replaced.
void ExtractionDirectory::write(const std::string& relative, Bytes bytes) {
  make_parents(relative);
  File(absolute(relative), O_WRONLY | O_CREAT | O_EXCL).write_at(0, bytes);
}

// The file is open during the call only, so the number of open files does not grow with the
// capture.
void ExtractionDirectory::write_at(const std::string& relative, std::uint64_t offset, Bytes bytes) {
  make_parents(relative);
  File(absolute(relative), O_WRONLY | O_CREAT).write_at(offset, bytes);
}

void ExtractionDirectory::read_at(const std::string& relative, std::uint64_t offset,
                                  MutableBytes out) const {
  File(absolute(relative), O_RDONLY).read_at(offset, out);
}

// Copies without the holes: images of files with little data may be very long.
void ExtractionDirectory::copy(const std::string& from, const std::string& to) {
  const File source(absolute(from), O_RDONLY);
  const File copy(absolute(to), O_WRONLY | O_CREAT | O_EXCL);
  constexpr std::uint64_t piece_bytes = 1024 * 1024;
  std::vector<std::byte> piece(piece_bytes);
  std::uint64_t at = 0;
  while (const auto data = source.next_data(at)) {
    for (at = data->begin; at < data->end;) {
      const auto size = static_cast<std::size_t>(std::min(data->end - at, piece_bytes));
      const auto bytes = MutableBytes(piece).first(size);
      source.read_at(at, bytes);
      copy.write_at(at, bytes);
      at += bytes.size();
    }
  }
  // A hole at the end of the source was not copied, so the copy is still too short.
  std::filesystem::resize_file(absolute(to), std::filesystem::file_size(absolute(from)));
}

void ExtractionDirectory::rename(const std::string& from, const std::string& to) {
  std::filesystem::rename(absolute(from), absolute(to));
}

// A symbolic link counts, also one whose target does not exist.
bool ExtractionDirectory::contains(const std::string& relative) const {
  return std::filesystem::exists(std::filesystem::symlink_status(absolute(relative)));
}

void ExtractionDirectory::resize(const std::string& relative, std::uint64_t bytes) {
  write_at(relative, 0, {});
  std::filesystem::resize_file(absolute(relative), bytes);
}

// Writes the separator before the entry, so that the array is valid when finish() adds its end.
JsonLine ExtractionDirectory::begin_entry(const std::string& relative, std::string_view type) {
  const std::string_view separator = files_++ == 0 ? "[\n" : ",\n";
  index_.append(separator.data(), separator.data() + separator.size());
  JsonLine line(index_);
  line.text("path", relative).text("type", type);
  return line;
}

void ExtractionDirectory::end_entry(JsonLine& line) {
  line.close();
  constexpr std::size_t full_bytes = 64 * 1024;
  if (index_.size() >= full_bytes) write_index();
}

// Appends the buffered part to index.json. The index may be large, so it is not kept in memory.
void ExtractionDirectory::write_index() {
  write_at("index.json", index_bytes_, std::as_bytes(std::span(index_.data(), index_.size())));
  index_bytes_ += index_.size();
  index_.clear();
}

void ExtractionDirectory::finish() {
  const std::string_view end = files_ == 0 ? "[]\n" : "\n]\n";
  index_.append(end.data(), end.data() + end.size());
  write_index();
}

}  // namespace weft::capture
