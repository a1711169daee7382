// The clients of one listening socket that wait for accept(2). The socket is the kernel's, and its
// clients leave the kernel's queue in one of two ways.
//
// Ahead of accept(2), by AcceptThread: as with TCP, a client is connected before the program
// accepts it, up to the backlog. This is done while only this process has the socket, and once the
// process is known to accept.
//
// By accept(2) itself: while another process has the socket as well (fork(2)), because a client
// that is taken here can be accepted only here; at first, because the process may be about to
// fork; and while clients come that are left to the kernel (DirectAccepting). The kernel then
// holds back the clients that have sent nothing, because some programs end if accept(2) finds no
// client after select(2) has reported one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "interpose/accepted_client.h"
#include "interpose/direct_accepting.h"
#include "interpose/kernel_offer_name.h"
#include "interpose/refusal.h"

namespace weft::interpose {

class Socket;

// Thread-safe.
class AcceptQueue : public std::enable_shared_from_this<AcceptQueue> {
 public:
  // `kernel` is the kernel socket of `socket`; it listens and does not block. `socket` is shown as
  // readable while a client waits. Throws Error.
  static std::shared_ptr<AcceptQueue> start(int kernel, int backlog, const stream::Options& options,
                                            std::weak_ptr<Socket> socket);
  AcceptQueue(int kernel, int backlog, const stream::Options& options,
              std::weak_ptr<Socket> socket);

  // The program is about to connect to `port`. If it listens there itself and connects before it
  // accepts, its own client must be taken ahead, or connect(2) would block for ever.
  static void before_connect(std::uint16_t port);
  // The program gets a client. Where it listens anew, its clients are connected ahead sooner.
  static void note_accepted();
  // The oldest client that was connected ahead.
  [[nodiscard]] std::optional<AcceptedClient> take();
  // The program has no descriptor for a client that was taken: it is the oldest one again.
  void put_back(AcceptedClient client);
  // EMFILE or ENFILE while clients wait for which there is no descriptor, else 0.
  [[nodiscard]] int shortage() const;
  // True if accept(2) must look into the kernel's queue.
  [[nodiscard]] bool uses_kernel_queue() const;
  // Connects clients ahead of accept(2) from now on. No effect on a socket that is shared.
  void accept_ahead();
  // Before fork(2): the child may accept as well from now on.
  void share();
  // In a child of vfork(2), which cannot do that itself: passes the socket to another program,
  // whose accept(2) `blocks` or not. This process shares it from then on.
  void pass(bool blocks);
  [[nodiscard]] bool is_shared() const;
  [[nodiscard]] bool is_open() const;
  // This process accepts no more clients. Those that were connected ahead are reset.
  void close();

  // Takes over a client that accept(2) has found in the kernel's queue, and whose request is not
  // whole yet.
  void add_arriving(Descriptor connection);
  // True if accept(2) takes the next client out of the kernel's queue, and reports each that is
  // left to the kernel. The first other one it hands over, which ends it.
  [[nodiscard]] bool accepts_directly() const;
  void note_accepted_directly();
  // accept(2) may block from now on.
  void stop_accepting_directly();
  void add_other(Descriptor connection, const FirstBytes& found);
  // To be called before a client is taken that may have to be added. False: all of those that are
  // waited for are too young to be closed, so the client has to stay in the kernel's queue.
  [[nodiscard]] static bool make_room_for_arriving();

  // --- For AcceptThread
  // A client waits in the kernel's queue.
  void on_client_waiting();
  // The first bytes of a client show what it speaks.
  void on_arrived(Descriptor connection, Protocol protocol, Refusal why);
  // The device has the requests of some clients: of those that were taken from the kernel's queue,
  // and of processes of this host that connect without TCP.
  void on_requests();
  // Checks whether a client still waits in the kernel's queue: another process may have accepted
  // it. `timer_expired`: no event came since the last check. Returns true if the check must be
  // repeated later.
  bool recheck(bool timer_expired);

 private:
  void begin_sharing();
  void share_if_passed();
  void announce();
  void stop_announcing();
  void open_requests();
  void offer_kernel(OfferedFor kind);
  void begin_accepting_ahead();
  void stop_deferring_at_first();
  void begin_accepting_directly();
  void end_accepting_directly();
  void take_from_kernel();
  bool take_one_from_kernel();
  void add_client(Descriptor connection, Protocol protocol, Refusal why);
  void give_to_device(Descriptor connection);
  void take_requests();
  void note_error(int error);
  void retry();
  void close_requests();
  void expect_own_client();
  [[nodiscard]] unsigned rechecks_before_taking() const;
  void watch_if_room();
  void show(bool another);

  const int kernel_;
  const std::uint16_t port_;
  const std::size_t backlog_;
  const stream::Options options_;
  const std::weak_ptr<Socket> socket_;
  mutable std::mutex mutex_;
  bool passed_ = false;
  std::uint64_t cookie_ = 0;
  bool open_ = true;
  bool accepts_ahead_ = false;
  bool defers_at_first_;  // silent clients do not show yet, until they are taken ahead
  bool shared_ = false;
  bool watched_ = false;       // AcceptThread reports the next client
  bool client_waits_ = false;  // in the kernel's queue, for accept(2)
  unsigned rechecks_ = 0;      // by the timer, since that client came
  unsigned checks_before_announcing_;
  bool announced_ = false;       // peers on this host find this process by `requests_`
  std::size_t own_clients_ = 0;  // connections from this process that are to be taken ahead
  bool lacks_room_ = false;      // for clients whose first bytes are awaited
  int shortage_ = 0;  // why no client can be taken, until the timer or accept(2) tries again
  bool requests_watched_ = false;
  std::optional<stream::Listener> requests_;  // has the clients whose request is whole
  std::deque<AcceptedClient> connected_;
  DirectAccepting direct_;
};

}  // namespace weft::interpose
