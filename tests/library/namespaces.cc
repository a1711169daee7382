// Two layers in one file, each with `using namespace`. The test library.programs compiles this
// file. No name of weft::verbs is a name of another layer. The layers above it share the names of
// what each of them has, a Listener or Options, with one meaning: these are written with their
// layer.
#include <weft/connection.hpp>
#include <weft/message.hpp>
#include <weft/stream.hpp>
#include <weft/verbs.hpp>

namespace verbs_and_connection {
using namespace weft::verbs;
using namespace weft::connection;

int write(const Connection& connection, const QueuePair& queue_pair, const Buffer& buffer,
          const RemoteBuffer& remote, const Endpoint&, const Completion&, const Outcome&,
          const Operations&, const AsyncOperations&, const Async&, const Listener&, const Options&,
          const Request&, const ConnectionEnd&, const Rejected&, const Address&) {
  const int written = connection.post_write(buffer.slice(), remote, 0, 1);
  return written + queue_pair.post_write(buffer.slice(), remote, 2);
}
}  // namespace verbs_and_connection

namespace verbs_and_stream {
using namespace weft::verbs;
using namespace weft::stream;

Outcome send(Stream& stream, const QueuePair& queue_pair, const Endpoint&, const Completion&,
             Listener&, const Options&, const Rejected&, Status, State, const Statistics&, Event&,
             EventQueue&, const EventChannel&, Async&, AsyncOperations&, View, Variant) {
  return queue_pair.number() == 0 ? Outcome() : stream.peek_send();
}
}  // namespace verbs_and_stream

namespace verbs_and_message {
using namespace weft::verbs;
using namespace weft::message;

Status send(Connection& connection, const QueuePair&, const Endpoint&, const Completion&, Listener&,
            const Options&, const Rejected&, State, const Statistics&, const Buffer& buffer,
            Received&, EventLoop&, const Handlers&, Request&, const Limits&) {
  return connection.send(buffer).status();
}
}  // namespace verbs_and_message

namespace connection_and_stream {
using namespace weft::connection;
using namespace weft::stream;

std::size_t serve(const weft::connection::Listener&, weft::stream::Listener&, Stream&, Connection&,
                  const Address&, Greeting&, const weft::connection::Rejected& rejected,
                  const weft::stream::Rejected& other) {
  return rejected.private_data().size() + other.private_data().size();
}
}  // namespace connection_and_stream

namespace connection_and_message {
using namespace weft::connection;
using namespace weft::message;

weft::message::Sending pass_on(EventLoop&, weft::message::Connection& to,
                               weft::connection::Connection&, const Address&, Received& received,
                               Prepared&, Advertisement&, Ending&) {
  return to.send(received.bytes());
}
}  // namespace connection_and_message

int main() {
  return 0;
}
