// Maps completions of the send queue back to the user's requests. An unsignaled request completes
// together with the next signaled one (ibv_post_send(3)), so this class signals some itself: the
// queue can never fill up with unsignaled requests.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "weft/verbs/completion.hpp"

namespace weft::connection::detail {

// A request that a coroutine waits for.
struct AwaitedRequest;

// Not thread-safe; guarded by Core::posting_.
class Requests {
 public:
  // Upper 16 bits of the work request ids that this library posts.
  static constexpr std::uint64_t mark = std::uint64_t{0x5743} << 48;

  explicit Requests(std::uint32_t depth) : depth_(depth) {}

  [[nodiscard]] bool full() const { return entries_.size() >= depth_; }
  // A request is under way that reports a completion, even if it succeeds.
  [[nodiscard]] bool awaits_completion() const;
  [[nodiscard]] std::size_t room() const { return depth_ - entries_.size(); }

  struct Posting {
    std::uint64_t id;  // wr_id to post with
    bool signaled;     // whether it must be posted signaled
  };
  // `wants_outcome`: the user has asked for an outcome. `internal`: a request of the library
  // itself, which the user never sees.
  Posting add(std::uint64_t user_id, bool wants_outcome, bool internal,
              AwaitedRequest* awaited = nullptr);
  // Undoes the last add(), because the request could not be posted.
  void drop_last();
  // Makes the last request, which was posted signaled for the library, report to the user: with
  // `user_id` and as a failure, because the requests that should follow it could not be posted.
  void fail_last(std::uint64_t user_id, AwaitedRequest* awaited);

  struct Finished {
    std::uint64_t user_id;
    bool report;              // the user gets an outcome
    bool incomplete;          // see fail_last()
    AwaitedRequest* awaited;  // receives the outcome; null: Connection::await() returns it
  };
  // Removes the completed request and all before it. `id` is the wr_id of its completion; nothing
  // if it is not in the queue.
  [[nodiscard]] std::optional<Finished> finish(std::uint64_t id, bool ok);

  // Stops delivering to `awaited`: Connection::await() returns the outcome instead.
  void detach(const AwaitedRequest& awaited);

  [[nodiscard]] static bool is_library_id(std::uint64_t id) { return id >> 48 == mark >> 48; }

 private:
  struct Entry {
    std::uint64_t user_id;
    bool wants_outcome;
    bool internal;
    bool signaled;
    AwaitedRequest* awaited;
    bool incomplete = false;
  };

  std::uint32_t depth_;
  std::deque<Entry> entries_;
  std::uint64_t first_ = 0;  // the number of entries_.front()
  std::uint32_t unsignaled_ = 0;
  std::uint32_t unsignaled_before_ = 0;  // the value before the last add(), for drop_last()
};

}  // namespace weft::connection::detail
