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

// A name from the wire as the name of a file: letters, digits, "-", "_" and inner "." stay, other
// bytes become "%2F". Never empty, never longer than 120 characters, never "." or "..".
[[nodiscard]] std::string safe_file_name(std::string_view name);

class ExtractionDirectory {
 public:
  // Makes the directory. Throws std::system_error where that is impossible, and
  // std::runtime_error where there is something in it already.
  explicit ExtractionDirectory(std::string path);
  ExtractionDirectory(const ExtractionDirectory&) = delete;
  ExtractionDirectory& operator=(const ExtractionDirectory&) = delete;

  // `relative` is made of safe names; directories are made as needed. Throw std::system_error.
  void write(const std::string& relative, Bytes bytes);
  void write_at(const std::string& relative, std::uint64_t offset, Bytes bytes);
  void read_at(const std::string& relative, std::uint64_t offset, MutableBytes out) const;
  void copy(const std::string& from, const std::string& to);
  void rename(const std::string& from, const std::string& to);
  [[nodiscard]] bool contains(const std::string& relative) const;
  void resize(const std::string& relative, std::uint64_t bytes);

  // Begins the object of one file; add to it, and end it with end_entry().
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
  fmt::memory_buffer index_;       // its part that is not written yet
  std::uint64_t index_bytes_ = 0;  // that are
  std::uint64_t files_ = 0;
};

}  // namespace weft::capture
