// Standard output as the report of `weft dissect` is written to it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace weft::cli {

// The reader of standard output has closed it, as `head` does. This is not an error.
class OutputClosed : public std::runtime_error {
 public:
  OutputClosed() : std::runtime_error("standard output is closed") {}
};

// Used by one thread at a time. SIGPIPE must be ignored, so that a closed pipe is an error of the
// write. Not by stdio, which loses what a signal keeps it from writing.
class StandardOutput {
 public:
  // `is_all`: the report is the only result. Otherwise a closed output only drops the rest of the
  // report, because the files that were asked for need the analysis to go on.
  explicit StandardOutput(bool is_all);
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;
  // Writes what is left as far as it can be written.
  ~StandardOutput();

  // Both throw OutputClosed if the reader has closed its end, and std::system_error if the output
  // cannot be written for another reason, such as a full disk.
  void write(std::string_view text);
  void flush();

 private:
  // Throws OutputClosed if nothing is left to do.
  [[nodiscard]] bool is_open() const;
  void note_failure(int error);

  bool is_all_;
  bool closed_ = false;
  bool by_lines_;  // a person watches
  std::string buffer_;
};

}  // namespace weft::cli
