#include "device/trace/queue_pair_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/completion/completion_queue.h"
#include "device/completion/status_names.h"

namespace weft::device {
namespace {

// An identity: the queue pair's number in the file, whether it is a receive, the request's number.
constexpr int number_bits = 36;
constexpr double ns_per_us = 1000;

std::string_view operation_name(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return "WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "WRITE_WITH_IMM";
    case IBV_WR_SEND:
      return "SEND";
    case IBV_WR_SEND_WITH_IMM:
      return "SEND_WITH_IMM";
    case IBV_WR_SEND_WITH_INV:
      return "SEND_WITH_INV";
    case IBV_WR_RDMA_READ:
      return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "CMP_AND_SWP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "FETCH_AND_ADD";
    case IBV_WR_ATOMIC_WRITE:
      return "ATOMIC_WRITE";
    case IBV_WR_BIND_MW:
      return "BIND_MW";
    case IBV_WR_LOCAL_INV:
      return "LOCAL_INV";
    default:
      return "request";
  }
}

// Binds and invalidations have no list.
std::uint64_t length_of_list(const ibv_sge* list, int count) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += list[i].length;
  return bytes;
}

std::string track_name(std::uint32_t queue_pair, bool receive) {
  return fmt::format("queue pair 0x{:06x} {}", queue_pair, receive ? "receive" : "send");
}

std::string_view status_name(ibv_wc_status status) {
  return status < status_names.size() ? status_names[status] : "unknown";
}

// An event of one request. `more`: further members of the object, each with a comma before it.
std::string event(char phase, std::string_view name, std::uint64_t identity,
                  const std::string& place, std::string_view more = {},
                  std::string_view category = "request") {
  return fmt::format(R"({{"ph":"{}","cat":"{}","name":"{}","id2":{{"local":"0x{:x}"}},{}{}}})",
                     phase, category, name, identity, place, more);
}

std::string_view kind_name(QueuePairTrace::Kind kind) {
  constexpr std::array<std::string_view, 4> names{"message", "write", "read", "atomic"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view wait_name(QueuePairTrace::Wait cause) {
  constexpr std::array<std::string_view, 5> names{
      "no room in TCP", "the peer cannot hold more messages", "no receive is posted",
      "the peer has no receive", "no room in the peer's inbox"};
  return names[static_cast<std::size_t>(cause)];
}

// A one-sided operation without data is not counted by the peer.
std::vector<QueuePairTrace::Kind> kinds_of(ibv_wr_opcode opcode, std::uint64_t bytes) {
  using Kind = QueuePairTrace::Kind;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return {Kind::message};
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return bytes > 0 ? std::vector{Kind::write, Kind::message} : std::vector{Kind::message};
    case IBV_WR_RDMA_WRITE:
      return bytes > 0 ? std::vector{Kind::write} : std::vector<Kind>{};
    case IBV_WR_RDMA_READ:
      return bytes > 0 ? std::vector{Kind::read} : std::vector<Kind>{};
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE:
      return {Kind::atomic};
    default:
      return {};
  }
}

// Sockets of IPv6 show addresses of IPv4 as mapped ones, and the other end may not.
std::string plain_address(std::string address) {
  constexpr std::string_view mapped = "[::ffff:";
  if (!address.starts_with(mapped) || address.find('.') == std::string::npos) return address;
  address.erase(0, mapped.size());
  address.erase(address.find(']'), 1);
  return address;
}

}  // namespace

QueuePairTrace::QueuePairTrace(std::shared_ptr<TraceFile> file, const ibv_qp& qp)
    : file_(std::move(file)), qp_(qp), number_(file_->next_number()) {}

std::uint64_t QueuePairTrace::identity(bool receive, std::uint64_t number) const {
  return ((number_ * 2 + (receive ? 1 : 0)) << number_bits) | number;
}

void QueuePairTrace::connection_began(std::string here, std::string there) {
  first_of_connection_ = sends_.first;
  here_ = plain_address(std::move(here));
  there_ = plain_address(std::move(there));
  counts_sent_ = {};
  counts_placed_ = {};
}

// The same number at both ends, of 48 bits, so that each reader of JSON keeps it exact: FNV-1a over
// the ends of the connection, the direction, and the message's place among those of its kind.
std::uint64_t QueuePairTrace::flow(bool from_here, Kind kind, std::uint64_t count) const {
  const std::string text = fmt::format("{}>{}/{}/{}", from_here ? here_ : there_,
                                       from_here ? there_ : here_, static_cast<int>(kind), count);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash >> 16;
}

// The mark "wire", and the beginnings of the arrows to where the peer has placed the message. On
// the same host the peer takes no part in one-sided operations, so that they have no arrow.
std::string QueuePairTrace::left(const Request& request, std::uint64_t number,
                                 const std::string& place, bool one_sided) {
  std::string events = event('n', "wire", identity(false, number), place);
  if (here_.empty()) return events;
  for (const Kind kind : request.messages) {
    if (kind != Kind::message && !one_sided) continue;
    const std::uint64_t count = counts_sent_[static_cast<std::size_t>(kind)]++;
    events += fmt::format(
        R"(,{}{{"ph":"s","cat":"flow","name":"{}","id":{},{},"args":{{"request":"0x{:x}"}}}})",
        "\n", kind_name(kind), flow(true, kind, count), request.place, identity(false, number));
  }
  return events;
}

void QueuePairTrace::placed(Kind kind) {
  if (here_.empty()) return;
  const std::uint64_t count = counts_placed_[static_cast<std::size_t>(kind)]++;
  const std::string place = file_->place(TraceFile::now_ns());
  // Viewers attach an arrow to a span of the thread.
  file_->append(fmt::format(
      R"({{"ph":"X","cat":"placed","name":"{} placed, queue pair 0x{:06x}","dur":0.001,{}}},)"
      "\n"
      R"({{"ph":"f","bp":"e","cat":"flow","name":"{}","id":{},{}}})",
      kind_name(kind), qp_.qp_num, place, kind_name(kind), flow(false, kind, count), place));
}

void QueuePairTrace::waits(Wait cause, bool waits) {
  Waiting& waiting = waiting_[static_cast<std::size_t>(cause)];
  if (waiting.now == waits) return;
  waiting.now = waits;
  if (waits) ++waiting.times;
  const std::uint64_t wait = (static_cast<std::uint64_t>(cause) + 1) << (number_bits + 24) |
                             number_ << number_bits | waiting.times;
  const std::string track = fmt::format("queue pair 0x{:06x} waits", qp_.qp_num);
  const std::string place = file_->place(TraceFile::now_ns());
  const std::string outer = event(waits ? 'b' : 'e', track, wait, place, {}, "wait");
  const std::string inner = event(waits ? 'b' : 'e', wait_name(cause), wait, place, {}, "wait");
  file_->append(waits ? outer + ",\n" + inner : inner + ",\n" + outer);
}

// The beginning of both spans, and of the call in the track of the thread.
std::string QueuePairTrace::begun(bool receive, std::uint64_t number, const std::string& name,
                                  std::uint64_t wr_id, std::uint64_t began_ns) {
  const std::uint64_t request = identity(receive, number);
  const std::string place = file_->place(began_ns);
  const std::string arguments = fmt::format(
      R"(,"args":{{"wr_id":"0x{:x}","request":{},"operation":"{}"}})", wr_id, number, name);
  return fmt::format("{},\n{}",
                     event('b', track_name(qp_.qp_num, receive), request, place, arguments),
                     event('b', name, request, place));
}

void QueuePairTrace::posted(const ibv_send_wr& request, std::uint64_t began_ns) {
  const bool local = request.opcode == IBV_WR_BIND_MW || request.opcode == IBV_WR_LOCAL_INV;
  const std::uint64_t bytes = local ? 0 : length_of_list(request.sg_list, request.num_sge);
  Request added{.name = fmt::format("{} {} bytes", operation_name(request.opcode), bytes),
                .place = file_->place(began_ns),
                .messages = kinds_of(request.opcode, bytes)};
  const std::uint64_t number = sends_.end();
  std::string events = begun(false, number, added.name, request.wr_id, began_ns);
  const double duration_us = static_cast<double>(TraceFile::now_ns() - began_ns) / ns_per_us;
  events += fmt::format(R"(,{}{{"ph":"X","cat":"post","name":"post {}","dur":{:.3f},{}}})", "\n",
                        added.name, duration_us, added.place);
  if (const std::uint64_t early_ns = std::exchange(early_ns_, 0); early_ns != 0) {
    events += ",\n" + left(added, number, file_->place(early_ns), false);
    sent_ = number + 1;
  }
  file_->append(events);
  sends_.open.push_back(std::move(added));
}

void QueuePairTrace::posted(const ibv_recv_wr& request, std::uint64_t began_ns) {
  std::string name =
      fmt::format("RECEIVE {} bytes", length_of_list(request.sg_list, request.num_sge));
  file_->append(begun(true, receives_.end(), name, request.wr_id, began_ns));
  receives_.open.push_back({.name = std::move(name), .place = {}});
}

void QueuePairTrace::executed(std::uint64_t requests) {
  const std::uint64_t until = first_of_connection_ + requests;
  note_sent(until, false);
  if (until > sends_.end()) early_ns_ = TraceFile::now_ns();
}

void QueuePairTrace::carried_out() {
  sent_ = std::max(sent_, sends_.first);
  if (sent_ < sends_.end()) return note_sent(sent_ + 1, false);
  early_ns_ = TraceFile::now_ns();
}

void QueuePairTrace::note_sent(std::uint64_t until, bool one_sided) {
  until = std::min(until, sends_.end());
  // Those that have completed meanwhile were counted by completed().
  sent_ = std::max(sent_, sends_.first);
  if (sent_ >= until) return;
  const std::string place = file_->place(TraceFile::now_ns());
  std::string events;
  for (; sent_ < until; ++sent_) {
    if (!events.empty()) events += ",\n";
    events += left(sends_.open[sent_ - sends_.first], sent_, place, one_sided);
  }
  file_->append(events);
}

// The end of the inner span of the oldest request. Receives of a shared queue were not posted here,
// so that their spans begin with their completion.
std::string QueuePairTrace::ended(bool receive, bool success, std::string_view arguments) {
  Queue& queue = receive ? receives_ : sends_;
  const std::uint64_t now_ns = TraceFile::now_ns();
  std::string events;
  if (queue.open.empty()) {
    events = begun(receive, queue.first, "RECEIVE of a shared queue", 0, now_ns) + ",\n";
    queue.open.push_back({.name = "RECEIVE of a shared queue", .place = {}});
  }
  // A request that changes local rights only is done when it is built, before anything leaves.
  if (!receive && success && sent_ <= queue.first) {
    events += left(queue.open.front(), queue.first, file_->place(now_ns), true) + ",\n";
  }
  events += event('e', queue.open.front().name, identity(receive, queue.first),
                  file_->place(now_ns), arguments);
  queue.open.pop_front();
  ++queue.first;
  return events;
}

std::uint64_t QueuePairTrace::completed(const Delivery& delivery) {
  const ibv_wc& completion = delivery.completion;
  std::string events;
  for (std::uint32_t i = 1; i < delivery.covered; ++i) {
    events +=
        ended(delivery.receive, true, R"(,"args":{"status":"SUCCESS","unsignaled":true})") + ",\n";
  }
  events +=
      ended(delivery.receive, completion.status == IBV_WC_SUCCESS,
            fmt::format(R"(,"args":{{"status":"{}","wr_id":"0x{:x}","bytes":{}}})",
                        status_name(completion.status), completion.wr_id, completion.byte_len));
  file_->append(events);
  return identity(delivery.receive, (delivery.receive ? receives_ : sends_).first - 1);
}

void QueuePairTrace::done_silently(std::uint64_t requests) {
  for (std::uint64_t i = 0; i < requests; ++i) {
    const std::uint64_t number = sends_.first;
    std::string events = ended(false, true, R"(,"args":{"status":"SUCCESS","unsignaled":true})");
    file_->append(events + ",\n" +
                  event('e', track_name(qp_.qp_num, false), identity(false, number),
                        file_->place(TraceFile::now_ns()), R"(,"args":{"polled":false})"));
  }
}

void QueuePairTrace::dropped() {
  for (const bool receive : {false, true}) {
    Queue& queue = receive ? receives_ : sends_;
    while (!queue.open.empty()) {
      const std::uint64_t request = identity(receive, queue.first);
      const std::string events = ended(receive, false, R"(,"args":{"status":"dropped"})");
      file_->append(events + ",\n" +
                    event('e', track_name(qp_.qp_num, receive), request,
                          file_->place(TraceFile::now_ns()), R"(,"args":{"polled":false})"));
    }
  }
}

void QueuePairTrace::polled(TraceFile& file, const Delivery& delivery, std::uint64_t number) {
  const std::string place = file.place(TraceFile::now_ns());
  const std::string name = track_name(delivery.completion.qp_num, delivery.receive);
  std::string events;
  for (std::uint32_t i = delivery.covered; i-- > 0;) {
    events += event('e', name, number - i, place, R"(,"args":{"polled":true})");
    if (i > 0) events += ",\n";
  }
  file.append(events);
}

}  // namespace weft::device
