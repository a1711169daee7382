// Runs greeting.cc as two processes, which use libfabric alone.
#include "fabric/sides.h"
#include "support/program.h"

namespace weft::fabric {
namespace {

// Runs tests/fabric/greeting.cc with these arguments.
struct Greeting : test::Program {
  explicit Greeting(std::vector<std::string> arguments)
      : Program(WEFT_FABRIC_GREETING, std::move(arguments)) {}
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
