#include "support/program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

extern char** environ;

namespace weft::test {

Program::Program(std::string path, std::vector<std::string> arguments) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<char*> words{path.data()};
  for (auto& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  EXPECT_EQ(posix_spawn(&pid_, path.c_str(), &actions, nullptr, words.data(), environ), 0) << path;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  output_ = fdopen(ends[0], "r");
}

Program::~Program() {
  (void)status();
  std::fclose(output_);
}

void Program::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

void Program::stop() const {
  signal(SIGSTOP);
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  EXPECT_TRUE(WIFSTOPPED(status));
}

std::string Program::line() {
  std::array<char, 200> text{};
  if (!std::fgets(text.data(), text.size(), output_)) return {};
  return {text.data(), std::string_view(text.data()).find('\n')};
}

int Program::status() {
  if (const pid_t ended = std::exchange(pid_, 0); ended > 0) waitpid(ended, &status_, 0);
  return status_;
}

}  // namespace weft::test
