// Another program, and what it prints.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace weft::test {

class Program {
 public:
  // Fails the test where it cannot be started.
  Program(std::string path, std::vector<std::string> arguments);
  // Waits for its end.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  // Of its standard output, without its end; empty where there is no more.
  [[nodiscard]] std::string line();
  // Waits for its end; as waitpid(2) has it.
  int status();

 private:
  pid_t pid_ = 0;
  int status_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace weft::test
