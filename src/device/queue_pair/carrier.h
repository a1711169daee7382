// What moves the work of a queue pair to its peer and back. The queue pair itself is the face that
// verbs programs see: it checks what they ask for, keeps the state, and publishes completions.
//
// Carriers: StreamCarrier (iWARP over TCP, for RC and UC), LocalCarrier (shared memory, between two
// processes of one user on one host) and DatagramCarrier (UD). A queue pair of type UD has its
// carrier from the beginning; the others get one when the handshake with their peer is done, and
// lose it when the connection ends.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/queue_pair/queue_pair_lock.h"
#include "faults/rules.h"
#include "iwarp/types.h"
#include "weft/counters.hpp"

namespace weft::device {

struct DirectPoll;

// One request of ibv_post_send(3), in the terms of the protocol core.
struct SendRequest {
  iwarp::WorkRequest work;
  // As the application gave it, for what only some carriers use (address handles). It is good until
  // post() returns.
  const ibv_send_wr* verbs = nullptr;
};

// Why a carrier is asked to move something.
enum class Occasion : std::uint8_t {
  ready,   // the progress thread has found its descriptor ready
  polled,  // an application thread polls a completion queue
  // As `ready`, and an application thread has just polled this queue pair and will do so again.
  between_polls,
  waiting,   // an application thread sleeps in Engine::wait(), and was woken for it
  deferred,  // what drive() left for later (Engine::defer()) is due now
  deadline,  // the time that it asked for has come
};

// Every member is called with the queue pair's lock held, unless its comment differs. A carrier
// calls nothing of the queue pair back; it adds completions and events to QueuePairParts.
class Carrier {
 public:
  Carrier() = default;
  virtual ~Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // Begins, and sends and receives what there is. 0, or an errno value where the connection has
  // ended at once for want of resources.
  virtual int start(QueuePairLock& lock) = 0;

  // --- Work

  // Whether post() may be called now. Where not, requests wait in QueuePairParts::waiting, and
  // advance() takes them from there as soon as it can.
  [[nodiscard]] virtual bool takes_requests(const QueuePairLock& lock) const = 0;
  // Whether the peer understands Sends with immediate.
  [[nodiscard]] virtual bool takes_send_immediate(const QueuePairLock& lock) const = 0;
  // Accepts one request, which the face has translated and found a place for: 0, ENOMEM, EINVAL or
  // EOPNOTSUPP. It need not send before advance().
  virtual int post(const SendRequest& request, QueuePairLock& lock) = 0;
  // The shortest way of a Send or Write of one piece that is the only request of its call, and
  // needs no posted(). False: it goes the usual way, from its beginning, which decides everything
  // that is not as it nearly always is. The face is in RTS and has found a place for it.
  [[nodiscard]] virtual bool post_promptly(const ibv_send_wr& /*request*/, bool /*signaled*/,
                                           const QueuePairLock& /*lock*/) {
    return false;
  }
  // Sends what it can: after a change of state, and where no other member is more exact.
  virtual void advance(QueuePairLock& lock) = 0;
  // The end of a call that has posted. As advance(), but requests may wait for those of the next
  // calls.
  virtual void posted(QueuePairLock& lock) { advance(lock); }
  // New receives are there.
  virtual void receives_posted(QueuePairLock& lock) = 0;
  // Moves what has come in and, where that raised answers, what goes out.
  virtual void drive(Occasion occasion, QueuePairLock& lock) = 0;
  // A poll of the program, whose thread takes successes by `poll` if that is not null. The shortest
  // way of drive() where there is nothing, or no more than what goes straight there. False: drive()
  // is to be called; some may have been taken. Carriers for which it is not cheaper do nothing.
  [[nodiscard]] virtual bool poll_promptly(DirectPoll* /*poll*/, const QueuePairLock& /*lock*/) {
    return false;
  }
  // An application thread polls the queue pair steadily: see Engine::leave(). Called again when the
  // engine has to watch it meanwhile.
  virtual void note_steady_polling(const QueuePairLock& /*lock*/) {}
  // ibv_modify_qp(3) has changed the timer or the retries of receiver-not-ready.
  virtual void retry_attributes_changed(QueuePairLock& lock) = 0;
  // The program has armed a completion queue (ibv_req_notify_cq(3)) and may sleep: what comes in
  // from now on must wake this process. Carriers that the kernel wakes anyway do nothing.
  virtual void expect_event(bool /*solicited_only*/, QueuePairLock& /*lock*/) {}
  // A thread looks in place of sleeping, until end_look(): what comes in need not wake this
  // process.
  virtual void begin_look(const QueuePairLock& /*lock*/) {}
  virtual void end_look(QueuePairLock& /*lock*/) {}
  // Every request that post() has accepted has completed.
  [[nodiscard]] virtual bool requests_done(const QueuePairLock& lock) const = 0;

  // --- The end

  // How the connection ended; `reason` is none while it lives.
  struct End {
    iwarp::EndReason reason = iwarp::EndReason::none;
    bool had_peer = false;  // the peer had the connection as well
    // What a refusal of the peer's requests is reported as, because no completion shows it.
    std::optional<ibv_event_type> event{};
  };
  [[nodiscard]] virtual bool ended(const QueuePairLock& lock) const = 0;
  [[nodiscard]] virtual End end(const QueuePairLock& lock) const = 0;
  // Ends the connection from this side, after what has arrived was taken in: rdma_disconnect(3).
  virtual void disconnect(QueuePairLock& lock) = 0;
  // The same, but leaves the peer some time to prove what was sent before. True: the carrier takes
  // no requests any more, discards those of the peer, and will end by itself; until then closing()
  // is true. False: there is nothing to wait for, and nothing has changed.
  [[nodiscard]] virtual bool begin_disconnect(QueuePairLock& /*lock*/) { return false; }
  [[nodiscard]] virtual bool closing(const QueuePairLock& /*lock*/) const { return false; }
  // Ends the connection; requests that are under way complete as flushed. Answers that are due are
  // still sent, if need be after stop().
  virtual void flush(QueuePairLock& lock) = 0;
  // Gives up sockets and the like, and adds what it has counted to the queue pair's counters. The
  // carrier is destroyed next, unless it is permanent().
  virtual void stop(QueuePairLock& lock) = 0;
  // Whether the same carrier serves the queue pair again after stop().
  [[nodiscard]] virtual bool permanent() const { return false; }

  // --- Other

  // What the connection waits for at this moment.
  struct Waits {
    bool room = false;     // TCP takes no more
    bool credits = false;  // the peer has no receive, and holds no more messages
    bool receive = false;  // a message of the peer finds no receive here
  };
  [[nodiscard]] virtual Waits waits() const { return {}; }
  // A rule of faults acts on the connection, before anything else is sent. Carriers without one do
  // nothing.
  virtual void inject(const faults::Action& /*fault*/, QueuePairLock& /*lock*/) {}

  // Memory is being deregistered: what is still to be sent from it is copied.
  virtual void forget_memory(const std::byte* base, std::size_t length_bytes,
                             QueuePairLock& lock) = 0;
  // Adds what it has counted so far and stop() has not yet handed over.
  virtual void add_counters(QueuePairCounters& counters) const = 0;
  // In the child after fork(), without the lock, which a thread may hold that does not exist there:
  // forgets descriptors, which the engine has closed.
  virtual void abandon_after_fork() = 0;
  // ibv_modify_qp(3) has changed what the peer may do. Carriers that look at the attributes with
  // each access do nothing.
  virtual void access_changed(QueuePairLock& /*lock*/) {}
};

}  // namespace weft::device
