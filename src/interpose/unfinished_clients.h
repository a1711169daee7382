// The clients of listening sockets that this process has inherited, by fork(2) or exec, and whose
// first bytes are not all here yet. Such sockets have no AcceptQueue: accept(2) waits for these
// clients together with the socket itself, so that a client that never finishes its request keeps
// no other one out.
//
// The program's descriptor is the kernel's socket, which nothing but a client makes readable. So
// where accept(2) leaves unfinished clients behind, a thread waits for them. When one of them can
// be served, it connects to the socket itself and sends wake_key, until the program has called
// accept(2). Another process may take that connection; then the thread repeats it.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/descriptor.h"
#include "interpose/first_bytes.h"
#include "interpose/refusal.h"

namespace weft::interpose {

// Thread-safe.
class UnfinishedClients {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A client about which is known what it speaks. `why` is what to count if it is not served.
  struct Arrived {
    Descriptor connection;
    Protocol protocol = Protocol::unknown;
    Refusal why = Refusal::malformed;
  };

  // The instance of this process. Never destroyed.
  static UnfinishedClients& instance();

  // Takes over a client of the listening socket `kernel`. If there are too many, closes the oldest.
  void add(int kernel, Descriptor connection);
  // The first client of `kernel` whose request is whole, which speaks something else, or which has
  // had enough time.
  [[nodiscard]] std::optional<Arrived> take(int kernel);
  enum class Waited {
    client,       // take() may return one
    kernel,       // `kernel` may have one in its queue
    interrupted,  // by a handler of a signal
  };
  // Waits for either kind of client. Returns `kernel` without waiting if no client of `kernel` is
  // unfinished. `blocks`: the program waits for clients in accept(2). Else it does not expect to
  // wait there, and only a tenth of its time is spent here; then `kernel` is returned as well.
  [[nodiscard]] Waited wait(int kernel, bool blocks);
  // The program does not wait for the unfinished clients of `kernel` from now on: a thread has it
  // call accept(2) when one of them is to be served.
  void watch(int kernel);
  // The thread has connected to `kernel` for that, and no process has accepted the connection yet.
  // False also where there is no room for the clients before it.
  [[nodiscard]] bool is_calling(int kernel);

  // Around fork(2): the list does not change meanwhile, and the child closes its copies.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  struct Client {
    Descriptor connection;
    std::uint64_t listener = 0;
    Time until;
    std::size_t bytes = 0;  // that have arrived
  };
  using Clients = std::list<Client>;  // the oldest first

  [[nodiscard]] std::optional<Arrived> decide(Client& client);
  [[nodiscard]] Time add_to(std::vector<pollfd>& waited, std::uint64_t listener) const;
  void wake_program(std::uint64_t listener, const sockaddr_storage& address);
  [[nodiscard]] bool await_decision(std::uint64_t listener);
  [[nodiscard]] bool find_served(std::uint64_t listener);
  void set_calling(std::uint64_t listener, bool calling);
  void give_up(std::uint64_t listener);

  std::mutex mutex_;
  Clients clients_;
  Time next_wait_;   // of programs that do not wait in accept(2)
  int waiting_ = 0;  // calls of wait()
  // The listeners that have a thread, and whether it is calling.
  std::map<std::uint64_t, bool> watched_;
};

}  // namespace weft::interpose
