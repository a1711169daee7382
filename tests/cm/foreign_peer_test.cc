// Peers that are not Weft: old ones, silent ones, and ones with another protocol.
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "cm/fixture.h"
#include "cm/plain_peer.h"
#include "iwarp/types.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::cm {
namespace {

constexpr std::uint64_t short_ns = 50'000'000;

class ForeignPeer : public CmTest {
 protected:
  rdma_cm_id* dial(const PlainListener& listener) {
    auto to = listener.address();
    rdma_cm_id* client = make_client_to(active_, reinterpret_cast<sockaddr*>(&to));
    make_queue_pair(client);
    rdma_conn_param parameters{};
    parameters.initiator_depth = 4;
    parameters.responder_resources = 4;
    EXPECT_EQ(manager_->connect(client, &parameters), 0);
    return client;
  }
};

class ImpatientPeer : public ForeignPeer {
 protected:
  ImpatientPeer() {
    options_ = {.handshake_timeout_ns = short_ns,
                .reply_timeout_ns = short_ns,
                .first_fpdu_timeout_ns = short_ns};
  }
};

// An empty RDMA Write without CRC: the first message of an initiator.
std::vector<std::byte> empty_write() {
  std::vector<std::byte> fpdu(wire::fpdu_bytes(wire::DdpTagged::header_bytes));
  store_be(fpdu.data(), static_cast<std::uint16_t>(wire::DdpTagged::header_bytes));
  wire::DdpTagged{.last = true,
                  .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::write),
                  .stag = iwarp::no_memory_stag}
      .emit(MutableBytes(fpdu).subspan(wire::fpdu_length_bytes));
  const auto covered = Bytes(fpdu).first(fpdu.size() - wire::fpdu_crc_bytes);
  wire::store_fpdu_crc(fpdu.data() + covered.size(), crc32c(covered));
  return fpdu;
}

std::vector<std::byte> empty_send() {
  std::vector<std::byte> fpdu(wire::fpdu_bytes(wire::DdpUntagged::header_bytes));
  store_be(fpdu.data(), static_cast<std::uint16_t>(wire::DdpUntagged::header_bytes));
  wire::DdpUntagged{
      .last = true, .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::send), .msn = 1}
      .emit(MutableBytes(fpdu).subspan(wire::fpdu_length_bytes));
  const auto covered = Bytes(fpdu).first(fpdu.size() - wire::fpdu_crc_bytes);
  wire::store_fpdu_crc(fpdu.data() + covered.size(), crc32c(covered));
  return fpdu;
}

wire::MpaEnhanced peer_to_peer(std::uint16_t ird, std::uint16_t ord) {
  return {.peer_to_peer = true, .rtr_write = true, .ird = ird, .ord = ord};
}

constexpr wire::MpaFrame request_1{.kind = wire::MpaKind::request, .crc = true, .revision = 1};
constexpr wire::MpaFrame request_2{
    .kind = wire::MpaKind::request, .crc = true, .enhanced = true, .revision = 2};
constexpr wire::MpaFrame reply_1{.kind = wire::MpaKind::reply, .crc = true, .revision = 1};
constexpr wire::MpaFrame reply_2{
    .kind = wire::MpaKind::reply, .crc = true, .enhanced = true, .revision = 2};

TEST_F(ForeignPeer, RevisionOneIsTriedWhereThePeerClosesOnTwo) {
  for (const bool reset : {false, true}) {
    const PlainListener listener;
    rdma_cm_id* client = dial(listener);
    PlainPeer first = listener.accept();
    const auto question = first.receive_frame();
    ASSERT_EQ(wire::MpaFrame::parse(question)->revision, 2);
    reset ? first.reset() : first.close();

    PlainPeer second = listener.accept();
    const auto again = second.receive_frame();
    const auto frame = wire::MpaFrame::parse(again);
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(frame->revision, 1);
    EXPECT_FALSE(frame->enhanced);
    second.send_frame(reply_1, nullptr);
    expect(active_, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(second.receive(empty_write().size()), empty_write());
    second.close();
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_TRUE(quiet(active_));
    destroy(client);
  }
  EXPECT_EQ(manager_->counters().revision_1_fallbacks, 2U);
}

TEST_F(ForeignPeer, ClosingTwiceIsARejection) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  for (int i = 0; i < 2; ++i) {
    PlainPeer peer = listener.accept();
    EXPECT_FALSE(peer.receive_frame().empty());
  }
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNRESET);
  EXPECT_TRUE(quiet(active_));
  destroy(client);
}

TEST_F(ForeignPeer, GarbageInsteadOfAReplyIsAConnectError) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  const std::string banner = "220 mail.example ESMTP ready\r\n";
  peer.send(std::as_bytes(std::span(banner)));
  expect(active_, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
  EXPECT_TRUE(peer.at_end());
  destroy(client);
}

TEST_F(ForeignPeer, UnenhancedReplyToAnEnhancedRequestIsAConnectError) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  peer.receive_frame();
  peer.send_frame(reply_1, nullptr);
  expect(active_, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
  destroy(client);
}

TEST_F(ForeignPeer, NoCommonReadyMessageIsTerminated) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  peer.receive_frame();
  const wire::MpaEnhanced nothing{.peer_to_peer = true, .ird = 4, .ord = 4};
  peer.send_frame(reply_2, &nothing);
  expect(active_, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
  const auto terminate = peer.receive(2 + wire::DdpUntagged::header_bytes);
  ASSERT_EQ(terminate.size(), 2 + wire::DdpUntagged::header_bytes);
  const auto header = wire::DdpUntagged::parse(Bytes(terminate).subspan(2));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->queue, wire::queue::terminate);
  EXPECT_TRUE(peer.at_end());
  destroy(client);
}

TEST_F(ForeignPeer, RejectionByFrameCarriesItsData) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  peer.receive_frame();
  auto frame = reply_2;
  frame.reject = true;
  const auto enhanced = peer_to_peer(0, 0);
  const std::string why = "full";
  peer.send_frame(frame, &enhanced, std::as_bytes(std::span(why)));
  if (const auto event = expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED)) {
    const auto& conn = event->param.conn;
    EXPECT_EQ(std::string(static_cast<const char*>(conn.private_data), conn.private_data_len), why);
  }
  destroy(client);
}

TEST_F(ForeignPeer, WithoutAnyReadCompletionsMeanThatTcpHasTheBytes) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  peer.receive_frame();
  const auto enhanced = peer_to_peer(0, 0);
  peer.send_frame(reply_2, &enhanced);
  if (const auto event = expect(active_, RDMA_CM_EVENT_ESTABLISHED)) {
    EXPECT_EQ(event->param.conn.initiator_depth, 0);
  }
  EXPECT_EQ(manager_->counters().unacknowledged, 1U);
  destroy(client);
}

TEST_F(ImpatientPeer, SilenceEndsInUnreachable) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  expect(active_, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  EXPECT_EQ(peer.receive_frame().size(), 24U);
  EXPECT_TRUE(peer.at_end());
  destroy(client);
}

// The peer may be a program that listens on one number by TCP and, at another place, by rdma_cm.
// What a client prints about it, and only once, names the variable that separates them.
class SharedPort : public ForeignPeer {
 protected:
  // What is on stderr after the client got the event, for what the peer does.
  template <typename Act>
  std::string printed(rdma_cm_event_type event, int status, const Act& act) {
    const PlainListener listener;
    port_ = std::to_string(ntohs(listener.address().sin_port));
    testing::internal::CaptureStderr();
    rdma_cm_id* client = dial(listener);
    act(listener);
    expect(active_, event, status);
    destroy(client);
    return testing::internal::GetCapturedStderr();
  }
  std::string port_;
};

TEST_F(SharedPort, AnAnswerThatIsNoMpaIsExplainedOnce) {
  const auto answer = [](const PlainListener& listener) {
    PlainPeer peer = listener.accept();
    const std::string text = "HTTP/1.0 400 Bad Request\r\nServer: none\r\n\r\n";
    peer.send(std::as_bytes(std::span(text)));
    EXPECT_FALSE(peer.receive_frame().empty());
    (void)peer.at_end();
  };
  const std::string first = printed(RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO, answer);
  EXPECT_THAT(first, testing::HasSubstr("127.0.0.1:" + port_ +
                                        " accepts TCP connections, but the "
                                        "peer does not speak MPA"));
  EXPECT_THAT(first, testing::HasSubstr("WEFT_PORT_OFFSET=n, on both sides"));
  EXPECT_EQ(printed(RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO, answer), "");
}

TEST_F(SharedPort, APeerThatClosesIsExplained) {
  const auto text = printed(RDMA_CM_EVENT_REJECTED, -ECONNRESET, [](const PlainListener& listener) {
    for (int attempt = 0; attempt < 2; ++attempt) {  // with revision 2, then with 1
      PlainPeer peer = listener.accept();
      EXPECT_FALSE(peer.receive_frame().empty());
    }
  });
  EXPECT_THAT(text, testing::HasSubstr("closed the connection during MPA set-up; if a program"));
  EXPECT_THAT(text, testing::HasSubstr("WEFT_PORT_OFFSET=n, on both sides"));
}

class SilentSharedPort : public SharedPort {
 protected:
  SilentSharedPort() { options_ = {.reply_timeout_ns = short_ns}; }
};

TEST_F(SilentSharedPort, IsExplained) {
  const auto text = printed(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, [](const PlainListener&) {});
  EXPECT_THAT(text, testing::HasSubstr("did not finish MPA set-up in time; if a program"));
  EXPECT_THAT(text, testing::HasSubstr("WEFT_PORT_OFFSET=n, on both sides"));
}

// Nothing is wrong with the port: the peer's program rejects, or no program listens.
TEST_F(SharedPort, ARejectionIsNotExplained) {
  EXPECT_EQ(printed(RDMA_CM_EVENT_REJECTED, -ECONNREFUSED,
                    [](const PlainListener& listener) {
                      PlainPeer peer = listener.accept();
                      EXPECT_FALSE(peer.receive_frame().empty());
                      auto reply = reply_2;
                      reply.reject = true;
                      const auto enhanced = peer_to_peer(1, 1);
                      peer.send_frame(reply, &enhanced);
                    }),
            "");
}

class UnansweredPeer : public ForeignPeer {
 protected:
  UnansweredPeer() { options_ = {.connect_timeout_ns = short_ns}; }
};

TEST_F(UnansweredPeer, TcpThatNeverConnectsEndsInUnreachable) {
  // A full queue of a listener drops further connections.
  const PlainListener listener(0);
  std::vector<rdma_cm_id*> clients;
  constexpr int more_than_fit = 4;
  for (int i = 0; i < more_than_fit; ++i) clients.push_back(dial(listener));
  if (const auto event = next(active_)) {
    EXPECT_EQ(event->event, RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_EQ(event->status, -ETIMEDOUT);
  }
  for (rdma_cm_id* client : clients) destroy(client);
}

TEST_F(ForeignPeer, GarbageInsteadOfARequestIsDroppedAndCounted) {
  listener_ = make_listener(passive_);
  const auto port = ntohs(Manager::get_src_port(listener_));
  PlainPeer peer = PlainPeer::connect(port);
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  peer.send(std::as_bytes(std::span(request)));
  EXPECT_TRUE(peer.at_end());
  EXPECT_EQ(manager_->counters().requests_dropped, 1U);
  Pair pair = connect_pair();
  destroy(pair);
}

TEST_F(ImpatientPeer, SilentConnectionsAreDropped) {
  listener_ = make_listener(passive_);
  PlainPeer peer = PlainPeer::connect(ntohs(Manager::get_src_port(listener_)));
  EXPECT_TRUE(peer.at_end());
  EXPECT_EQ(manager_->counters().requests_dropped, 1U);
}

TEST_F(ForeignPeer, TakesNoSendWithImmediate) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  const auto request = wire::MpaFrame::parse(peer.receive_frame());
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->mark, wire::MpaMark::request);
  auto echo = reply_2;  // as the kernel's siw: with the reserved flags of the request
  echo.mark = request->mark;
  echo.words = request->words;
  const auto enhanced = peer_to_peer(4, 4);
  peer.send_frame(echo, &enhanced);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  ibv_send_wr immediate{};
  immediate.opcode = IBV_WR_SEND_WITH_IMM;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(client->qp, &immediate, &bad), EOPNOTSUPP);
  destroy(client);
}

class AcceptedPeer : public ForeignPeer {
 protected:
  // A request from a plain peer, and its id.
  rdma_cm_id* requested(PlainPeer& peer, const wire::MpaFrame& frame,
                        const wire::MpaEnhanced* enhanced) {
    if (!listener_) listener_ = make_listener(passive_);
    peer = PlainPeer::connect(ntohs(Manager::get_src_port(listener_)));
    peer.send_frame(frame, enhanced);
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* server = request->id;
    make_queue_pair(server);
    return server;
  }
};

TEST_F(AcceptedPeer, RevisionOneIsAnsweredInKindAndEstablishedAtOnce) {
  PlainPeer peer;
  rdma_cm_id* server = requested(peer, request_1, nullptr);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  const auto reply = wire::MpaFrame::parse(peer.receive_frame());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->revision, 1);
  EXPECT_FALSE(reply->enhanced);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  peer.close();
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(server->qp->state, IBV_QPS_ERR);
  destroy(server);
}

TEST_F(AcceptedPeer, PeerToPeerIsEstablishedByTheFirstFpdu) {
  PlainPeer peer;
  const auto enhanced = peer_to_peer(8, 8);
  rdma_cm_id* server = requested(peer, request_2, &enhanced);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  EXPECT_FALSE(peer.receive_frame().empty());
  EXPECT_TRUE(quiet(passive_));
  peer.send(empty_write());
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  destroy(server);
}

TEST_F(AcceptedPeer, LostConnectionIsToldAtOnce) {
  PlainPeer peer;
  const auto enhanced = peer_to_peer(8, 8);
  rdma_cm_id* server = requested(peer, request_2, &enhanced);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  EXPECT_FALSE(peer.receive_frame().empty());
  peer.send(empty_write());
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  peer.reset();  // as the kernel does for a process that is killed
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(server->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(manager_->disconnect(server), 0);
  EXPECT_TRUE(quiet(passive_));
  destroy(server);
}

TEST_F(AcceptedPeer, ByteByByteIsEnough) {
  listener_ = make_listener(passive_);
  PlainPeer peer = PlainPeer::connect(ntohs(Manager::get_src_port(listener_)));
  std::array<std::byte, wire::MpaFrame::header_bytes + 3> frame{};
  auto header = request_1;
  header.private_data_bytes = 3;
  header.emit(frame);
  std::memcpy(frame.data() + wire::MpaFrame::header_bytes, "abc", 3);
  for (const std::byte& byte : frame) peer.send({&byte, 1});
  rdma_cm_id* server = nullptr;
  if (const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)) {
    server = request->id;
    ASSERT_EQ(request->param.conn.private_data_len, 3);
    EXPECT_EQ(std::memcmp(request->param.conn.private_data, "abc", 3), 0);
  }
  destroy(server);
  auto refused = wire::MpaFrame::parse(peer.receive_frame());
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(refused->reject);
}

TEST_F(AcceptedPeer, AcceptTellsThatThePeerHasGone) {
  PlainPeer peer;
  rdma_cm_id* server = requested(peer, request_1, nullptr);
  peer.reset();
  EXPECT_EQ(manager_->accept(server, nullptr), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_TRUE(quiet(passive_));
  destroy(server);
}

TEST_F(AcceptedPeer, PeerThatGoesBeforeItsFirstFpduIsAConnectError) {
  PlainPeer peer;
  const auto enhanced = peer_to_peer(8, 8);
  rdma_cm_id* server = requested(peer, request_2, &enhanced);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  EXPECT_FALSE(peer.receive_frame().empty());
  peer.close();
  expect(passive_, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  EXPECT_TRUE(quiet(passive_));
  destroy(server);
}

// The kernel's siw as a responder loses what arrives right after its reply.
TEST_F(ForeignPeer, TheFirstMessageIsRepeatedToASilentPeer) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  PlainPeer peer = listener.accept();
  peer.receive_frame();
  const auto enhanced = peer_to_peer(4, 4);
  peer.send_frame(reply_2, &enhanced);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(peer.receive(empty_write().size()), empty_write());
  destroy(client);
}

// An initiator that asks for no ready-to-receive message and sends nothing: the responder must not
// send, so its program waits.
class SilentInitiator : public AcceptedPeer {
 protected:
  // Accepts such a peer, and posts a Send of no bytes.
  rdma_cm_id* accepted(PlainPeer& peer) {
    rdma_cm_id* server = requested(peer, request_1, nullptr);
    EXPECT_EQ(manager_->accept(server, nullptr), 0);
    EXPECT_FALSE(peer.receive_frame().empty());
    expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(server->qp, &request, &bad), 0);
    return server;
  }
};

// What comes out of a pipe up to `last`, or until nothing has come for long.
std::string read_until(int pipe, std::string_view last) {
  std::string text;
  std::array<char, 1000> part{};
  pollfd readable{.fd = pipe, .events = POLLIN, .revents = 0};
  while (text.find(last) == std::string::npos && poll(&readable, 1, patience_ms) == 1) {
    const ssize_t bytes = read(pipe, part.data(), part.size());
    if (bytes <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(bytes));
  }
  return text;
}

TEST_F(SilentInitiator, IsNamedOnStandardErrorWithTheRemedies) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const int original = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  PlainPeer peer;
  rdma_cm_id* server = accepted(peer);
  const std::string lines = read_until(ends[0], "WEFT_RESPONDER_FIRST=1");
  dup2(original, STDERR_FILENO);
  close(original);
  close(ends[1]);
  close(ends[0]);
  EXPECT_NE(lines.find("127.0.0.1"), std::string::npos) << lines;
  EXPECT_NE(lines.find("peer_to_peer"), std::string::npos) << lines;
  EXPECT_NE(lines.find("WEFT_RESPONDER_FIRST"), std::string::npos) << lines;
  peer.send(empty_write());  // then it may
  EXPECT_EQ(peer.receive(empty_send().size()), empty_send());
  destroy(server);
}

class SpeakingResponder : public SilentInitiator {
 protected:
  SpeakingResponder() { settings_.responder_first = true; }
};

TEST_F(SpeakingResponder, SendsWithoutTheFirstMessage) {
  PlainPeer peer;
  rdma_cm_id* server = accepted(peer);
  EXPECT_EQ(peer.receive(empty_send().size()), empty_send());
  peer.send(empty_write());
  peer.close();
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_TRUE(quiet(passive_));
  destroy(server);
}

// As an InfiniBand adapter.
class StrictDevice : public ForeignPeer {
 protected:
  StrictDevice() { settings_.strict = true; }
  void SetUp() override {
    ForeignPeer::SetUp();
    if (!device_->is_roce()) GTEST_SKIP() << "iWARP adapters do none of this";
  }
};

TEST_F(StrictDevice, PadsPrivateDataAsInfinibandDoes) {
  const std::string data = "short";
  rdma_conn_param parameters{};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  Pair pair = connect_pair(parameters, parameters);
  EXPECT_EQ(pair.client_data, data + std::string(56 - data.size(), '\0'));
  EXPECT_EQ(pair.server_data, data + std::string(196 - data.size(), '\0'));
  destroy(pair);
}

TEST_F(StrictDevice, FlushesWhenTheProgramAnswersTheDisconnection) {
  Pair pair = connect_pair();
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(pair.server->qp, &request, &bad), 0);
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(pair.server->recv_cq, 1, &completion), 0);
  EXPECT_EQ(pair.server->qp->state, IBV_QPS_RTS);
  ASSERT_EQ(manager_->disconnect(pair.server), 0);
  EXPECT_EQ(completion_of(pair.server->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.server->qp->state, IBV_QPS_ERR);
  destroy(pair);
}

class ImpatientAccept : public AcceptedPeer {
 protected:
  ImpatientAccept() { options_ = {.first_fpdu_timeout_ns = short_ns}; }
};

TEST_F(ImpatientAccept, PeerWithoutAFirstFpduIsUnreachable) {
  PlainPeer peer;
  const auto enhanced = peer_to_peer(8, 8);
  rdma_cm_id* server = requested(peer, request_2, &enhanced);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  EXPECT_FALSE(peer.receive_frame().empty());
  expect(passive_, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  EXPECT_TRUE(peer.at_end());
  EXPECT_EQ(server->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(device_->refusals().no_first_fpdu, 1U);
  EXPECT_TRUE(quiet(passive_));
  destroy(server);
}

}  // namespace
}  // namespace weft::cm
