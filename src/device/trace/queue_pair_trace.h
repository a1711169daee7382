// What a queue pair adds to a trace (trace_file.h): each work request from its post to the poll of
// its completion.
//
// The tracks are "queue pair 0x000011 send" and "... receive", with one span for each request, from
// post to poll. A span with the name of the operation lies inside, from post to completion, with a
// mark "wire" where the last byte was handed to the network, or copied to the peer's memory.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/trace/trace_file.h"

namespace weft::device {

struct Delivery;

// The queue pair's lock covers it. It exists only if the user asked for a trace.
class QueuePairTrace {
 public:
  // `qp` outlives this object.
  QueuePairTrace(std::shared_ptr<TraceFile> file, const ibv_qp& qp);

  // Posting has accepted the request; the call began at `began_ns`.
  void posted(const ibv_send_wr& request, std::uint64_t began_ns);
  void posted(const ibv_recv_wr& request, std::uint64_t began_ns);
  // A connection begins: what is not complete is sent through it. `here`, `there`: the addresses
  // and ports of its TCP connection, which name it at both ends.
  void connection_began(std::string here, std::string there);
  // The network has taken this many requests of the connection whole, since it began.
  void sent(std::uint64_t requests) { note_sent(first_of_connection_ + requests, true); }
  // As sent(), by copies on the same host. The last one may be that which is being posted.
  void executed(std::uint64_t requests);
  // Another request was carried out, as a datagram. It may be the one that is being posted.
  void carried_out();
  // What the peer's device and this one count alike, so that a message is found at both ends. A
  // Write with immediate is both a message and a write.
  enum class Kind : std::uint8_t { message, write, read, atomic };
  // A message of the peer is placed here, or its Read or atomic is carried out.
  void placed(Kind kind);
  // What a queue pair may wait for.
  enum class Wait : std::uint8_t {
    room,
    credits,
    receive,
    peer_receive,  // on the same host, where the sender waits for the receive
    inbox,         // the same
  };
  // Whether it does so from now on. Does nothing where that is known.
  void waits(Wait cause, bool waits);

  // The completion is about to become visible. Returns its number in the trace, for polled().
  [[nodiscard]] std::uint64_t completed(const Delivery& delivery);
  // The oldest requests have succeeded and will have no completion.
  void done_silently(std::uint64_t requests);
  // The requests are forgotten: ibv_modify_qp(3) to RESET, ibv_destroy_qp(3).
  void dropped();

  // The program has polled a completion that has this number.
  static void polled(TraceFile& file, const Delivery& delivery, std::uint64_t number);

 private:
  struct Request {
    std::string name;   // the operation and its size
    std::string place;  // of the call that posted it
    std::vector<Kind> messages{};
  };
  using Counts = std::array<std::uint64_t, 4>;  // by Kind
  struct Waiting {
    bool now = false;
    std::uint64_t times = 0;
  };
  // Requests that have no completion, in the order of posting; the oldest one has number `first`.
  struct Queue {
    std::deque<Request> open;
    std::uint64_t first = 0;
    [[nodiscard]] std::uint64_t end() const { return first + open.size(); }
  };

  void note_sent(std::uint64_t until, bool one_sided);
  [[nodiscard]] std::string left(const Request& request, std::uint64_t number,
                                 const std::string& place, bool one_sided);
  [[nodiscard]] std::uint64_t flow(bool from_here, Kind kind, std::uint64_t count) const;
  [[nodiscard]] std::uint64_t identity(bool receive, std::uint64_t number) const;
  [[nodiscard]] std::string begun(bool receive, std::uint64_t number, const std::string& name,
                                  std::uint64_t wr_id, std::uint64_t began_ns);
  [[nodiscard]] std::string ended(bool receive, bool success, std::string_view arguments);

  std::shared_ptr<TraceFile> file_;
  const ibv_qp& qp_;
  const std::uint64_t number_;  // of the queue pair in the file
  Queue sends_;
  Queue receives_;
  std::string here_;
  std::string there_;
  Counts counts_sent_{};
  Counts counts_placed_{};
  std::array<Waiting, 5> waiting_{};  // by Wait
  std::uint64_t first_of_connection_ = 0;
  std::uint64_t sent_ = 0;      // requests before this one have their mark "wire"
  std::uint64_t early_ns_ = 0;  // when the request that is being posted was carried out; or 0
};

}  // namespace weft::device
