// A program that is started, listened to, and never left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace weft::cli {

class Child {
 public:
  // Its two outputs come to us. Where it cannot be started, it has exit status 127.
  explicit Child(const std::vector<std::string>& command);
  ~Child();  // kills it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The next line; nothing where it has closed its outputs or `deadline` has passed.
  [[nodiscard]] std::optional<std::string> line(std::chrono::steady_clock::time_point deadline);
  // True where `deadline` ended the last line().
  [[nodiscard]] bool late() const { return late_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string read_;
  bool late_ = false;
};

}  // namespace weft::cli
