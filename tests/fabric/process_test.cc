// The greeting between two processes, each a program of libfabric alone.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "fabric/sides.h"

extern char** environ;

namespace weft::fabric {
namespace {

// tests/fabric/greeting.cc with these arguments.
class Greeting {
 public:
  explicit Greeting(std::vector<std::string> arguments) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    arguments.insert(arguments.begin(), WEFT_FABRIC_GREETING);
    std::vector<char*> words;
    for (auto& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
  }
  ~Greeting() {
    if (pid_ > 0) (void)status();
    std::fclose(output_);
  }
  Greeting(const Greeting&) = delete;
  Greeting& operator=(const Greeting&) = delete;

  [[nodiscard]] std::string line() {
    char text[200] = "";
    if (!std::fgets(text, sizeof text, output_)) return {};
    return std::string(text, std::string_view(text).find('\n'));
  }
  // Waits for its end.
  [[nodiscard]] int status() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
  FILE* output_ = nullptr;
};

class FabricProcesses : public BothProtocols {};
WEFT_BOTH_PROTOCOLS(FabricProcesses);

TEST_P(FabricProcesses, ExchangeTheGreeting) {
  const std::string protocol = GetParam() == FI_PROTO_IWARP ? "iwarp" : "rstream";
  Greeting server({"server", protocol});
  const std::string port = server.line();
  Greeting client({"client", port, protocol});
  EXPECT_EQ(client.line(), "hello stream!");
  EXPECT_EQ(server.line(), "the greeting came back");
  EXPECT_EQ(client.status(), 0);
  EXPECT_EQ(server.status(), 0);
}

}  // namespace
}  // namespace weft::fabric
