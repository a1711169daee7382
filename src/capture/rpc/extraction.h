// The directory that `weft dissect --extract` fills, and its index.json: an array with one object
// for each file.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "capture/text/json_line.h"

namespace weft::capture {

// Converts a name from the wire to a file name: letters, digits, "-", "_" and inner "." are kept,
// other bytes become "%2F" and so on. The result is never empty, never longer than 120 characters,
// never "." or "..".
[[nodiscard]] std::string safe_file_name(std::string_view name);

class ExtractionDirectory {
 public:
  // Creates the directory. Throws std::system_error if that fails, and std::runtime_error if the
  // directory is not empty.
  explicit ExtractionDirectory(std::string path);
  ExtractionDirectory(const ExtractionDirectory&) = delete;
  ExtractionDirectory& operator=(const ExtractionDirectory&) = delete;

  // `relative` consists of safe names; missing directories are created. These functions throw
  // std::system_error.
  void write(const std::string& relative, Bytes bytes);
  void write_at(const std::string& relative, std::uint64_t offset, Bytes bytes);
  void read_at(const std::string& relative, std::uint64_t offset, MutableBytes out) const;
  void copy(const std::string& from, const std::string& to);
  void rename(const std::string& from, const std::string& to);
  [[nodiscard]] bool contains(const std::string& relative) const;
  void resize(const std::string& relative, std::uint64_t bytes);

  // Begins the object of one file; add fields to it, and end it with end_entry().
  JsonLine begin_entry(const std::string& relative, std::string_view type);
  void end_entry(JsonLine& line);
  // Writes the rest of index.json.
  void finish();
  [[nodiscard]] std::uint64_t files() const { return files_; }

 private:
  [[nodiscard]] std::string absolute(const std::string& relative) const {
    return path_ + "/" + relative;
  }
  void make_parents(const std::string& relative) const;

  void write_index();

  std::string path_;
  fmt::memory_buffer index_;       // the part that is not written yet
  std::uint64_t index_bytes_ = 0;  // bytes that are written
  std::uint64_t files_ = 0;
};

}  // namespace weft::capture
