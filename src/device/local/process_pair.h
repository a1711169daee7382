// Two processes of one user on one host that have left TCP with one connection, and now make
// further ones without TCP: what they hold in common.
//
// A connection of its own for each queue pair costs a TCP connection, a Unix socket and two files
// of shared memory, all of which are made, passed, mapped and given back. A pair of processes has
// one Unix socket and inboxes that connections use one after the other (inbox_pool.h). The MPA
// request and the reply travel in memory that both map, or over that socket where descriptors go
// along, and queue pairs are woken by bells: bits in that memory. One message on the socket wakes
// the other process for all that is new before it is read. None is needed while a thread of its
// program waits for an event of the connection manager (pair_wait.h).
//
// One side dials, and the other one serves: processes that connect to each other in both directions
// have two pairs. The dialing side introduces the pair (process_pairs.h). Where anything is missing
// the dialer uses TCP, which every connection between two processes begins with: so nothing but
// time depends on this.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/engine.h"
#include "device/local/inbox_pool.h"
#include "device/local/local_channel.h"
#include "device/local/pair_bells.h"
#include "device/local/pair_message.h"
#include "device/local/peer_contexts.h"
#include "device/local/peer_process.h"
#include "device/local/sole_reader.h"
#include "device/queue_pair/shared_files.h"

namespace weft::device {

class Context;
class Device;
class PairEnd;

// What a connection needs of its queue pair.
struct PairTerms {
  Context* context = nullptr;  // none: it must use TCP
  std::uint32_t receives = 0;  // LocalConnection::receives_of()
};

// The answer to a request, at the dialing side.
struct PairReply {
  pair_message::Answer answer = pair_message::Answer::not_serving;
  bool accepted = false;  // the peer has begun the connection, also where the answer is `lacking`
  std::vector<std::byte> frame;
  InboxPlace inbox;  // of the peer, if it has accepted
  std::shared_ptr<const PeerProcess> process;
  SharedFiles files;
  sys::Descriptor stream;
};

// Thread-safe.
class ProcessPair final : public Pollable, public std::enable_shared_from_this<ProcessPair> {
 public:
  struct Role {
    bool dials = false;   // this side
    bool staged = false;  // one process cannot reach the memory of the other one: see staging.h
  };
  ProcessPair(Device& device, LocalChannel channel, SharedMemory bells, pid_t peer, Role role);

  // The size of the memory for the bells.
  [[nodiscard]] static std::size_t bells_bytes() { return 2 * sizeof(PairBells); }
  // False where there are no descriptors.
  [[nodiscard]] bool start();
  [[nodiscard]] pid_t peer() const { return peer_; }
  [[nodiscard]] bool staged() const { return staged_; }
  // The other process has ended, executes another program, or has closed the pair.
  [[nodiscard]] bool gone() const { return gone_.load(std::memory_order_acquire); }
  // Closes it if it has no connection and no thread reads from it.
  [[nodiscard]] bool close_if_idle();
  void abandon_after_fork();

  struct Request {
    const sockaddr_storage& source;
    const sockaddr_storage& destination;
    Bytes frame;
    const PairTerms& terms;
    const SharedFiles& files;  // that its program shares; copied
  };
  // Sends the request. `target` is called when there is an answer. Not valid: use TCP.
  [[nodiscard]] PairEnd dial(const Request& request, std::weak_ptr<Pollable> target);

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

  // --- A thread of the program that waits for an event of the connection manager: see PairWait.

  // False: another thread waits here, or the pair is over.
  [[nodiscard]] bool begin_wait();
  // What comes from now on finds the thread awake.
  void look_on();
  // Handles what is new.
  void look();
  // The thread is going to sleep on waiting_word(), for as long as that is Waiting::sleeps. False:
  // something is new.
  [[nodiscard]] bool begin_sleep();
  // Wakes the thread, if it sleeps. From any other thread, between begin_wait() and end_wait().
  void end_sleep();
  // What the thread has not seen is left to the progress thread.
  void end_wait();
  [[nodiscard]] std::atomic<Waiting>& waiting_word() const { return bells(dials_).waiting; }

 private:
  friend class PairEnd;

  // For whom a bell is: data that a program waits for may be seen by any thread, while an event of
  // the connection manager is for the thread that waits for one.
  enum class Wakes : std::uint8_t { engine, waiter };

  struct Entry {
    bool used = false;
    bool cancelled = false;      // the reply is not awaited any more
    bool replied = false;        // at the dialing side
    bool inbox_unknown = false;  // at the serving side: the peer could not map it
    InboxPlace cancelled_own;
    std::weak_ptr<Pollable> target;
    std::optional<PairReply> reply;
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::vector<sys::Descriptor> descriptors;
  };
  // An inbox that the peer may still use, and at the dialing side the number of its connection.
  struct Leaving {
    std::uint32_t number = 0;
    InboxPlace own;
  };
  using Header = pair_message::Header;
  using Answer = pair_message::Answer;

  // With the lock.
  [[nodiscard]] std::optional<std::uint32_t> take_number();
  [[nodiscard]] InboxPlace take_inbox(std::uint32_t receives);
  void give_back(InboxPlace own);
  void collect();
  void free_number(std::uint32_t number);
  // False, and nothing is sent: the peer has no room yet, and no descriptors are left to keep the
  // files until then. A message without files is always sent.
  [[nodiscard]] bool send(const Header& header, Bytes frame, std::span<const int> descriptors);
  [[nodiscard]] bool send_by_channel(const Header& header, Bytes frame,
                                     std::span<const int> descriptors);
  [[nodiscard]] bool send_with_files(Header header, Bytes frame, const InboxPlace& own,
                                     Context* context, const SharedFiles& files, int stream);
  // `events`: what epoll reports of the channel.
  void flush_outgoing(std::uint32_t events);
  [[nodiscard]] bool send_first_outgoing();
  void note_sent_context(const ProcessMark::Name& mark);
  [[nodiscard]] InboxPlace map_inbox(const pair_message::InboxName& name, sys::Descriptor file);
  void report_lacking(const Header& acceptance, const InboxPlace& inbox);
  void give_back_left(std::uint32_t number);
  void forget_sent(const Header& header);

  // Without the lock.
  [[nodiscard]] bool handle(LocalChannel::Message message);
  [[nodiscard]] bool handle_of_channel(LocalChannel::Message message);
  [[nodiscard]] bool serve(std::uint32_t events);
  [[nodiscard]] bool read_channel();
  [[nodiscard]] bool take_mail();
  [[nodiscard]] bool on_connect(const Header& header, Bytes frame,
                                std::vector<sys::Descriptor> files);
  [[nodiscard]] bool on_reply(const Header& header, Bytes frame,
                              std::vector<sys::Descriptor> files);
  [[nodiscard]] bool on_cancel(std::uint32_t number);
  void on_drop_file(std::uint32_t file_number);
  [[nodiscard]] bool on_lacks(const Header& header);
  [[nodiscard]] bool take_parts(const Header& header, std::vector<sys::Descriptor> files,
                                PairReply& parts);
  void call(std::uint32_t number);
  [[nodiscard]] bool take_new();
  void take_left();
  void end_reading(bool open);
  void come_again();
  void call_rung();
  void end();
  void ring(std::uint32_t number, Wakes wakes);
  void announce(Wakes wakes);
  void leave(std::uint32_t number, InboxPlace own);
  [[nodiscard]] PairBells& bells(bool of_dialing_side) const;
  [[nodiscard]] bool same_user() const;

  Device& device_;
  LocalChannel channel_;
  SharedMemory bells_;
  const pid_t peer_;
  const bool dials_;
  const bool staged_;
  const std::uint32_t user_;
  std::atomic<bool> gone_{false};
  std::atomic<bool> abandoned_{false};
  SoleReader reader_;        // of channel_ and the mail; has begun for good once that is closed
  std::atomic_flag waited_;  // begin_wait()
  PairMailReader mail_;      // by the thread that reads

  std::mutex mutex_;            // of what follows
  std::vector<Entry> entries_;  // by number
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> free_numbers_;
  std::deque<Leaving> leaving_;
  std::deque<Outgoing> outgoing_;
  PairMailWriter outgoing_mail_;
  InboxPool inboxes_;
  std::map<std::uint32_t, std::shared_ptr<InboxFile>> peer_files_;
  std::vector<std::uint32_t> sent_files_;
  std::vector<ProcessMark::Name> sent_contexts_;
  PeerContexts peer_contexts_;
};

}  // namespace weft::device
