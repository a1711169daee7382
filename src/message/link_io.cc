// Progress of a connection: completions in, frames and RDMA Reads out.
#include <fmt/format.h>

#include <array>
#include <exception>

#include "base/size.h"
#include "message/link.h"

namespace weft::message::detail {
namespace {

// How many completions or messages are handled before other connections have their turn.
constexpr std::size_t batch = 64;
constexpr std::size_t polled_at_once = 16;

// All exceptions in question are Errors or std::bad_alloc.
int error_number_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known ? known->error_number() : ENOMEM;
}

}  // namespace

// --- Turns ---------------------------------------------------------------------------------------

void Link::on_completion_event() {
  transport_.on_completion_event();
  loop_->ready(shared_from_this());
}

std::size_t Link::turn() {
  if (!was_established_ || !loop_) return 0;  // on_established() makes it ready again
  return turn(end_ ? 0 : poll());
}

std::size_t Link::look() {
  if (!was_established_ || !loop_ || end_) return 0;
  const std::size_t polled = poll();
  return polled > 0 ? turn(polled) : 0;
}

// One turn: completions, which were polled, then what they allow to post, then the application's
// handlers. What these send is posted after them and not at once, so that it shares frames and
// lists of requests. Completions come first because they bring credits, which the frames need.
std::size_t Link::turn(std::size_t polled) {
  // A callback may throw. The rest of the turn then follows in another one.
  struct Turn {
    std::shared_ptr<Link> link;
    bool again = true;
    ~Turn() {
      link->turns_.inside = false;
      if (again && link->loop_ && !link->end_) link->loop_->ready(link);
    }
  } turn{shared_from_this()};
  turns_.inside = true;
  turns_.queued = false;
  std::size_t done = polled;
  refill_receives();
  post_work();
  done += deliver_messages(batch);
  done += report_statuses(2 * batch);
  post_work();
  report_writable();
  // Coroutines run here, so what they send joins the last post_work() of the turn.
  waiters_.resume_ready();
  post_work();
  if (loop_ && !end_ && session_->finished_by_peer()) end(Ending::By::peer, 0, "");
  turn.again = polled >= batch || session_->has_changes() ||
               (session_->has_ready() && handlers_ && handlers_->message);
  expect_completions();
  return done;
}

// Either the loop polls this connection from now on, or an event reports completions.
void Link::expect_completions() {
  if (!loop_ || end_ || turns_.polled) return;
  if (!loop_->can_poll()) {
    // What has come before the queue was armed raises no event, and the loop may ask for events
    // before the next turn of this connection.
    if (transport_.arm() && poll() > 0 && loop_) loop_->ready(shared_from_this());
    return;
  }
  turns_.polled = true;
  loop_->poll_later(shared_from_this());
}

std::size_t Link::arm() {
  turns_.polled = false;
  if (!loop_ || end_ || !transport_.arm()) return 0;
  return look();
}

// --- Completions ---------------------------------------------------------------------------------

// Handles at most a batch.
std::size_t Link::poll() {
  std::size_t done = 0;
  while (done < batch && !end_ && poll_some(done)) continue;
  return done;
}

// Adds what it has found to `done`. Returns whether there may be more.
bool Link::poll_some(std::size_t& done) {
  std::array<verbs::Completion, polled_at_once> completions;
  Device& device = *transport_.device();
  BlockPointer block = device.warm.take(*device.pool);
  ReceivePlace place;
  if (block) place = {.at = block->data, .bytes = device.pool->block_bytes()};
  const auto got = transport_.poll(completions, place);
  if (place.used >= 0) {
    receive_slots_.replace(slot_of(got[static_cast<std::size_t>(place.used)].id()),
                           std::move(block));
  } else {
    device.warm.give_back(std::move(block));
  }
  for (const auto& completion : got) complete(completion);
  done += got.size();
  return got.size() == polled_at_once || place.more;
}

void Link::complete(const verbs::Completion& completion) {
  if (!completion.ok()) {
    // A flush follows another error or a disconnection, which is reported by its own event.
    if (completion.status() == IBV_WC_WR_FLUSH_ERR) return;
    // The peer does not answer any more. The disconnection event may come first or second: both end
    // the connection in the same way.
    if (completion.status() == IBV_WC_RETRY_EXC_ERR) return end(Ending::By::cut, ECONNRESET, "");
    return fail(EIO,
                fmt::format("{}: a request has failed: {}", peer_.name, completion.status_name()));
  }
  if (liveness_.is_enabled()) liveness_.received(steady_now());
  switch (work_of(completion.id())) {
    case Work::send:
      return complete_send(slot_of(completion.id()));
    case Work::receive:
      return complete_receive(completion);
    case Work::read:
      return complete_read();
    case Work::probe:
      return liveness_.probe_completed();
  }
}

void Link::complete_send(std::uint32_t slot) {
  session_->on_sent(send_slots_.complete(slot));
  if (send_slots_.is_closing(slot)) end(Ending::By::us, 0, "");
}

void Link::complete_receive(const verbs::Completion& completion) {
  const std::uint32_t slot = slot_of(completion.id());
  switch (session_->on_frame(receive_slots_.bytes(slot, completion.size_bytes()), slot)) {
    case Session::FrameResult::violation:
      return fail(EPROTO,
                  fmt::format("{} violates the protocol: {}", peer_.name, session_->violation()));
    // The frame had no message, so its receive is free at once.
    case Session::FrameResult::released:
      return post_receive(slot);
    case Session::FrameResult::kept:
      return;
  }
}

void Link::complete_read() {
  if (InMessage* const message = fetcher_.complete_read()) session_->on_fetched(*message);
}

// --- Receives ------------------------------------------------------------------------------------

// On an established connection a failure means that it has just ended, which an event will report.
void Link::post_receive(std::uint32_t slot) {
  if (BlockPointer warm = receive_slots_.restore(slot)) {
    transport_.device()->warm.give_back(std::move(warm));
  }
  const int failed = transport_.queue_pair().post_receive(receive_slots_.slice(slot),
                                                          work_id(Work::receive, slot));
  if (failed && !was_established_) fail(failed, "cannot post a receive");
}

// Posts new receives in the place of those whose memory the application has kept. The peer gets the
// credit back only then.
void Link::refill_receives() {
  while (receive_slots_.has_missing() && !end_) {
    BlockPointer block;
    try {
      block = transport_.device()->pool->replace_block();
    } catch (const std::exception& error) {  // out of memory
      return fail(ENOMEM, fmt::format("no memory for a receive: {}", error.what()));
    }
    if (!block) return wait_for_memory();
    post_receive(receive_slots_.fill(std::move(block)));
    session_->restore();
  }
}

// The limit of the pool is reached: the loop calls turn() again when memory has been released.
void Link::wait_for_memory() {
  if (!turns_.waits_for_memory) loop_->wait_for_memory(shared_from_this());
  turns_.waits_for_memory = true;
}

// --- Posting -------------------------------------------------------------------------------------

void Link::post_work() {
  if (!was_established_ || end_ || !loop_) return;
  post_reads();
  post_frames();
}

// Posts the frames that are due as lists of requests, which cost much less than single requests.
void Link::post_frames() {
  if (!session_->has_next()) return;
  constexpr std::size_t list_size = 16;
  std::array<SendSlots::Slices, list_size> slices;
  auto list = transport_.queue_pair().batch<list_size>();
  const TimePoint now = steady_now();
  while (send_slots_.available() && !end_) {
    auto emission = session_->next(now);
    if (!emission) break;
    const std::uint32_t slot = send_slots_.next();
    std::span<const LocalSlice> frame;
    try {
      frame = send_slots_.prepare(*emission, slices[list.size()]);
    } catch (const std::exception& error) {
      fail(error_number_of(error), error.what());
      break;
    }
    if (!emission->messages.empty()) ++statistics_.frames_sent;
    list.send(frame, work_id(Work::send, slot));
    // If this fails, the connection has ended; an event will report it.
    if (list.size() == list_size) (void)list.submit();
  }
  // Requests that the device refuses are lost with the connection; no completion is expected for
  // them.
  (void)list.submit();
}

// What this call cannot finish, it leaves to a turn that it queues. Statuses need no turn if the
// application has no callback for them.
std::size_t Link::post_burst() {
  turns_.queued = false;
  turns_.posted = true;
  post_work();
  return take_early_completions();
}

// Within a host a Send completes while it is posted. Its records and its block are then used again
// for the next connection, instead of memory that has left the cache.
std::size_t Link::take_early_completions() {
  if (!loop_ || end_ || turns_.inside || !loop_->sends().completes_at_once()) return 0;
  const std::size_t done = poll();
  loop_->sends().learn(done > 0);
  if (done == 0 || end_) return done;
  if (!statuses_matter()) (void)report_statuses(SIZE_MAX);
  const bool more = session_->has_changes() || session_->has_ready() || session_->has_next() ||
                    session_->closed_by_peer() || send_refused_ || !waiters_.empty();
  if (more) loop_->ready(shared_from_this());
  return done;
}

// --- Fetching ------------------------------------------------------------------------------------

// Makes sure that the fetcher has something to read. False if there is no message, or no memory.
bool Link::begin_fetch() {
  if (fetcher_.has_unread()) return true;
  const InMessage* const message = fetcher_.next_message(*session_);
  if (!message || turns_.waits_for_memory) return false;
  BlockPointer block;
  try {
    block = transport_.device()->pool->take_counted(to_size(message->bytes));
  } catch (const std::exception& error) {  // out of memory
    fail(ENOMEM,
         fmt::format("no memory for a message of {} bytes: {}", message->bytes, error.what()));
    return false;
  }
  if (!block) {
    wait_for_memory();
    return false;
  }
  fetcher_.begin(std::move(block));
  return true;
}

void Link::post_reads() {
  while (!end_ && fetcher_.can_read() && begin_fetch()) {
    const auto read = fetcher_.next_read();
    (void)transport_.queue_pair().post_read(read.into, read.from, work_id(Work::read, 0));
  }
}

}  // namespace weft::message::detail
