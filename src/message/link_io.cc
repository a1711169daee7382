// What moves: completions in, frames and reads out.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <exception>

#include "base/size.h"
#include "message/link.h"

namespace weft::message::detail {
namespace {

constexpr std::size_t batch = 64;
constexpr std::uint32_t max_reads = 4;
// Of one read: so that one long message does not keep the others from being read.
constexpr std::uint64_t read_bytes = std::uint64_t{16} << 20;

Record& record_of(const Emission& emission) {
  return static_cast<Record&>(*emission.messages.front());
}

// Other than ours there is only the one of no memory.
int error_number_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours ? ours->error_number() : ENOMEM;
}

}  // namespace

// --- Completions ---------------------------------------------------------------------------------

void Link::on_completion_event() {
  armed_ = false;
  loop_->ready(shared_from_this());
}

std::size_t Link::turn() {
  if (!was_established_ || !loop_) return 0;  // on_established() comes back to it
  // What a callback throws does not make us forget the rest.
  struct Turn {
    std::shared_ptr<Link> link;
    bool again = true;
    ~Turn() {
      link->in_turn_ = false;
      if (again && link->loop_ && !link->end_) link->loop_->ready(link);
    }
  } turn{shared_from_this()};
  in_turn_ = true;
  const std::size_t polled = end_ ? 0 : poll();
  std::size_t done = polled;
  refill();
  pump();
  done += hand_over(batch);
  done += tell_changes(2 * batch);
  pump();
  tell_writable();
  wake_waiters();
  pump();
  if (loop_ && !end_ && session_->finished_by_peer()) end(Ending::By::peer, 0, "");
  turn.again = polled >= batch || session_->has_changes() ||
               (session_->has_ready() && handlers_ && handlers_->message);
  return done;
}

// Takes at most a batch; where that is not all, the queue is not armed.
std::size_t Link::poll() {
  std::array<verbs::Completion, 16> some;
  std::size_t done = 0;
  while (done < batch && !end_) {
    const auto got = queue_->poll(some);
    for (const auto& completion : got) complete(completion);
    done += got.size();
    if (!got.empty()) continue;
    if (armed_) break;
    queue_->arm();
    armed_ = true;  // and look again: what came before raises no event
  }
  return done;
}

void Link::complete(const verbs::Completion& completion) {
  if (!completion.ok()) {
    if (completion.status() == IBV_WC_WR_FLUSH_ERR) return;  // the reason is on its way
    // Nobody answers any more: the same end as the event that may come first.
    if (completion.status() == IBV_WC_RETRY_EXC_ERR) return end(Ending::By::cut, ECONNRESET, "");
    return broken(
        EIO, fmt::format("{}: a request has failed: {}", peer_text_, completion.status_name()));
  }
  const auto slot = static_cast<std::uint32_t>(completion.id());
  switch (static_cast<Work>(completion.id() >> 32)) {
    case Work::send:
      return complete_send(slot);
    case Work::receive:
      return complete_receive(completion);
    case Work::read:
      return complete_read();
  }
}

void Link::complete_send(std::uint32_t slot) {
  free_headers_.push_back(slot);
  const Posted posted = std::exchange(under_way_[slot], {});
  session_->on_sent(posted.messages);
  if (closing_slot_ == slot) end(Ending::By::us, 0, "");
}

void Link::complete_receive(const verbs::Completion& completion) {
  const auto slot = static_cast<std::uint32_t>(completion.id());
  heard_ = TimePoint::clock::now();
  asked_ = false;
  switch (session_->on_frame(Bytes(receives_[slot]->data, completion.size_bytes()), slot)) {
    case Session::Taken::violation:
      return broken(EPROTO,
                    fmt::format("{} violates the protocol: {}", peer_text_, session_->violation()));
    case Session::Taken::released:
      return post_receive(slot);
    case Session::Taken::kept:
      return;
  }
}

void Link::complete_read() {
  --reads_under_way_;
  Fetch& fetch = fetches_.front();
  if (--fetch.reads > 0 || fetch.asked < fetch.message->bytes) return;
  session_->on_fetched(*fetch.message);
  fetched_.push_back(std::move(fetch.block));
  fetches_.pop_front();
}

void Link::broken(int error, std::string what) {
  end(Ending::By::failure, error, std::move(what));
}

// --- Receives ------------------------------------------------------------------------------------

void Link::post_receive(std::uint32_t slot) {
  const Block& block = *receives_[slot];
  const LocalSlice into(reinterpret_cast<std::uint64_t>(block.data),
                        static_cast<std::uint32_t>(device_->pool->block_bytes()), block.lkey);
  const int failed = queue_pair_->post_receive(into, work_id(Work::receive, slot));
  // After the end of a connection that nobody has told us of yet, nothing can be posted.
  if (failed && !was_established_) broken(failed, "cannot post a receive");
}

// New receives for those that the user has kept.
void Link::refill() {
  while (!missing_.empty() && !end_) {
    BlockPointer block;
    try {
      block = device_->pool->replace_block();
    } catch (const std::exception& error) {  // out of memory
      return broken(ENOMEM, fmt::format("no memory for a receive: {}", error.what()));
    }
    if (!block) {
      if (!waits_for_memory_) loop_->wait_for_memory(shared_from_this());
      waits_for_memory_ = true;
      return;
    }
    const std::uint32_t slot = missing_.back();
    missing_.pop_back();
    receives_[slot] = std::move(block);
    post_receive(slot);
    session_->restore();
  }
}

// --- Sending -------------------------------------------------------------------------------------

void Link::pump() {
  if (!was_established_ || end_ || !loop_) return;
  post_reads();
  post_frames();
}

// Together what goes together: one list of requests is much cheaper than as many calls.
void Link::post_frames() {
  constexpr std::size_t together = 16;
  std::array<Slices, together> slices;
  auto list = queue_pair_->batch<together>();
  while (!free_headers_.empty() && !end_) {
    auto emission = session_->next(TimePoint::clock::now());
    if (!emission) break;
    const std::uint32_t slot = free_headers_.back();
    const auto frame = prepare(*emission, slot, slices[list.size()]);
    if (frame.empty()) break;
    list.send(frame, work_id(Work::send, slot));
    // Where this fails, the connection has ended, and we will be told.
    if (list.size() == together) (void)list.submit();
  }
  (void)list.submit();
}

// The peer may read these bytes, and no others, until it has.
void Link::grant(Record& record, Frame& frame) {
  for (const auto& piece : record.pieces) {
    record.granted.push_back(
        device_->domain.register_memory(std::span(piece.at, to_size(piece.bytes)),
                                        static_cast<verbs::Access>(IBV_ACCESS_REMOTE_READ)));
    frame.pieces.push_back(record.granted.back().remote());
  }
}

// Copied together: one piece for each would be more than a request may have.
LocalSlice Link::join(const Emission& emission, Posted& posted) {
  const Frame& frame = emission.frame;
  posted.joined = device_->pool->take_block();
  const Block& block = *posted.joined;
  const std::size_t bytes = frame.encode({block.data, block.bytes});
  for (std::size_t i = 0; i < frame.parts.size(); ++i) {
    std::byte* into = block.data + frame.parts[i].offset;
    for (const auto& piece : static_cast<const Record&>(*emission.messages[i]).pieces) {
      std::memcpy(into, piece.at, to_size(piece.bytes));
      into += piece.bytes;
    }
  }
  return {reinterpret_cast<std::uint64_t>(block.data), static_cast<std::uint32_t>(bytes),
          block.lkey};
}

// The frame in its slot, and what goes behind it; nothing where that cannot be.
std::span<const LocalSlice> Link::prepare(Emission& emission, std::uint32_t slot, Slices& slices) {
  const Kind kind = emission.frame.kind;
  Posted posted;
  std::size_t count = 0;
  try {
    if (kind == Kind::joined) {
      slices[count++] = join(emission, posted);
    } else {
      if (kind == Kind::offer) grant(record_of(emission), emission.frame);
      const std::size_t at = slot * Frame::largest_bytes;
      const auto place = headers_->elements().subspan(at, Frame::largest_bytes);
      slices[count++] = headers_->slice(at, emission.frame.encode(place));
    }
  } catch (const std::exception& error) {
    broken(error_number_of(error), error.what());
    return {};
  }
  if (kind == Kind::message) {
    for (const auto& piece : record_of(emission).pieces) {
      slices[count++] = {reinterpret_cast<std::uint64_t>(piece.at),
                         static_cast<std::uint32_t>(piece.bytes), piece.lkey};
    }
  }
  free_headers_.pop_back();
  if (kind != Kind::offer) posted.messages = emission.messages.size();
  under_way_[slot] = std::move(posted);
  if (!emission.messages.empty()) ++counted_.frames_sent;
  if (kind == Kind::close) closing_slot_ = slot;
  return std::span(slices).first(count);
}

// --- Fetching ------------------------------------------------------------------------------------

// Sees to it that the last fetch has bytes that are not asked for yet.
bool Link::open_fetch() {
  if (!fetches_.empty() && fetches_.back().asked < fetches_.back().message->bytes) return true;
  if (!to_fetch_) to_fetch_ = session_->next_fetch();
  if (!to_fetch_ || waits_for_memory_) return false;
  BlockPointer block;
  try {
    block = device_->pool->take_counted(to_size(to_fetch_->bytes));
  } catch (const std::exception& error) {  // out of memory
    broken(ENOMEM,
           fmt::format("no memory for a message of {} bytes: {}", to_fetch_->bytes, error.what()));
    return false;
  }
  if (!block) {
    waits_for_memory_ = true;
    loop_->wait_for_memory(shared_from_this());
    return false;
  }
  fetches_.push_back({std::exchange(to_fetch_, nullptr), std::move(block)});
  return true;
}

void Link::post_reads() {
  while (!end_ && reads_under_way_ < max_reads && open_fetch()) {
    Fetch& fetch = fetches_.back();
    const verbs::RemoteSlice& piece = fetch.message->pieces[fetch.piece];
    const std::uint64_t bytes = std::min(piece.size_bytes() - fetch.offset, read_bytes);
    const LocalSlice into(reinterpret_cast<std::uint64_t>(fetch.block->data + fetch.asked),
                          static_cast<std::uint32_t>(bytes), fetch.block->lkey);
    fetch.asked += bytes;
    ++fetch.reads;
    ++reads_under_way_;
    (void)queue_pair_->post_read(into, piece.slice(fetch.offset, bytes), work_id(Work::read, 0));
    fetch.offset += bytes;
    if (fetch.offset == piece.size_bytes()) {
      ++fetch.piece;
      fetch.offset = 0;
    }
  }
}

}  // namespace weft::message::detail
