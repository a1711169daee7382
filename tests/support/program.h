// Runs another program and reads its output.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace weft::test {

class Program {
 public:
  // Starts the program; the test fails if that is not possible.
  Program(std::string path, std::vector<std::string> arguments);
  // Waits for the program to exit.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  // Stops the program by SIGSTOP, and returns when none of its threads runs any more.
  void stop() const;
  // Returns the next line of its standard output without the newline; empty at the end of the
  // output.
  [[nodiscard]] std::string line();
  // Waits for its exit; the status is that of waitpid(2).
  int status();

 private:
  pid_t pid_ = 0;
  int status_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace weft::test
