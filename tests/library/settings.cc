// Sets one member of each aggregate of settings, as programs do. The test library.programs compiles
// this file with -Wextra and -Werror: a member without an initializer of its own would warn here.
#include <weft/connection.hpp>
#include <weft/message.hpp>
#include <weft/stream.hpp>
#include <weft/verbs.hpp>

int main() {
  using namespace weft;
  const auto all = [](const auto&... settings) { return sizeof...(settings); };
  const auto count =
      all(verbs::AddressOptions{.hop_limit = 1}, verbs::ConnectionParameters{.retry_count = 1},
          verbs::CompletionQueueOptions{.vector = 1},
          verbs::ExtendedCompletionQueueOptions{.vector = 1},
          verbs::SharedReceiveQueueOptions{.receives = 1}, connection::Options{.queue_depth = 1},
          connection::Greeting{.buffer = {}}, stream::Options{.send_queue = 2},
          stream::Keepalive{.probes = 1}, message::Limits{.credits = 1},
          message::SendOptions{.type = 1}, message::Handlers{.sent = {}},
          message::Options{.user = nullptr});
  return count == 0;
}
