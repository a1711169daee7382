// Two layers in one file, each with `using namespace`. The test library.programs compiles this
// file. No name of weft::verbs is a name of another layer. The layers above it share the names of
// what each of them has, a Listener, Options, Rejected, Request, State or Statistics, with one
// meaning: these are written with their layer. What only one layer has needs no layer in front of
// it: an Outcome is that of a posted request, a Transfer that of bytes of a stream, and Status the
// state of a message.
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

Transfer send(Stream& stream, const QueuePair& queue_pair, const Endpoint&, const Completion&,
              Listener&, const Options&, const Rejected&, TransferStatus, State, const Statistics&,
              Event&, EventQueue&, const EventChannel&, Async&, AsyncOperations&, View, Variant) {
  return queue_pair.number() == 0 ? Transfer() : stream.peek_send();
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

std::size_t serve(const weft::connection::Listener&, weft::stream::Listener&, Stream& stream,
                  Connection& connection, const Address&, Greeting&, Queue queue,
                  const weft::connection::Rejected& rejected, const weft::stream::Rejected& other) {
  const std::vector<Outcome> outcomes = connection.await(queue, 1, weft::Deadline::now());
  const Transfer sent = stream.peek_send();
  if (outcomes.empty() || sent.status == TransferStatus::failed) return 0;
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

namespace message_and_stream {
using namespace weft::message;
using namespace weft::stream;

Status pass_on(Connection& from, Stream& to, const SendOptions& options, Ending&, View&) {
  const auto received = from.try_receive();
  if (!received || to.send(received->bytes()).end()) return Status::failed;
  return from.send("passed on", options).status();
}
}  // namespace message_and_stream

int main() {
  return 0;
}
