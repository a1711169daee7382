// Runs a program and reads its output line by line. The program never outlives this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace weft::cli {

class Child {
 public:
  // Starts the program with standard output and standard error connected to line(). If it cannot be
  // executed, it prints why, and ends with exit status 127. Throws std::system_error.
  explicit Child(const std::vector<std::string>& command);
  ~Child();  // kills the program
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The next line. Nothing if the program has closed its outputs, or at `deadline`.
  [[nodiscard]] std::optional<std::string> line(std::chrono::steady_clock::time_point deadline);
  // True if `deadline` ended the last call of line().
  [[nodiscard]] bool late() const { return late_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string read_;
  bool late_ = false;
};

}  // namespace weft::cli
