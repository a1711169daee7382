// The kernel of a simulation: its hosts with their processes, and the sockets between them.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/simulated_kernel.h"
#include "simulation/datagrams.h"
#include "simulation/links.h"
#include "simulation/pipe.h"
#include "simulation/process.h"
#include "simulation/programs.h"
#include "simulation/schedule.h"

namespace weft::simulation {

struct Socket {
  enum class State : std::uint8_t { made, bound, listening, connecting, connected, failed };

  int fd = -1;
  State state = State::made;
  Place local;
  Place peer;
  int error = 0;               // SO_ERROR
  bool was_reset = false;      // by the other end
  bool ends_by_reset = false;  // SO_LINGER with no time
  bool keeps_alive = false;    // SO_KEEPALIVE
  bool abandoned = false;      // by its process, whose end may come first
  bool initiated = false;      // this end has connected
  bool wants_room = false;     // a send found none
  bool refusal_due = false;    // bytes that the other end will refuse were lost
  // Null until it is connected. `other` is the socket at the other end, this one where it is
  // connected to itself, and gone where it was closed.
  std::shared_ptr<Pipe> in;
  std::shared_ptr<Pipe> out;
  std::weak_ptr<Socket> other;
  LinkState* link = nullptr;
  Time wire_free = 0;  // by the rate of the link
  std::deque<std::shared_ptr<Socket>> backlog;
  std::unique_ptr<Inbox> inbox;  // of UDP; null: a socket of TCP
  // The arguments of epoll_ctl(2); events == 0: not watched.
  std::size_t watcher = 0;
  std::uint32_t events = 0;
  std::uint64_t token = 0;
  std::shared_ptr<SimulatedProcess> process;  // that has made it; null: not known yet

  [[nodiscard]] bool dead() const { return process && process->dead; }
};

class Network final : public SimulatedKernel {
 public:
  Network(std::uint64_t seed, const Link& link, bool polls_advance);

  [[nodiscard]] Schedule& schedule() { return schedule_; }
  [[nodiscard]] std::uint64_t events() const { return carried_out_; }
  // For the choices of the test, apart from those of the network.
  [[nodiscard]] Random& random() { return choices_; }
  // The end of the simulation: nothing happens any more.
  void end();

  // --- Hosts

  // Returns its number.
  std::size_t add_host(std::uint32_t address);
  [[nodiscard]] std::uint32_t address(std::size_t host) const { return hosts_.at(host); }
  [[nodiscard]] std::optional<std::size_t> host_at(std::uint32_t address) const;
  // Devices that are made from here on belong to a new process of this host. nullopt: none may be
  // made.
  void open_on(std::optional<std::size_t> host);
  void kill(std::size_t host);
  [[nodiscard]] bool is_alive(std::size_t host) const;
  // Starts a program in a process of its own.
  void run(std::size_t host, std::string name, std::function<void()> function);
  [[nodiscard]] Programs& programs() { return programs_; }

  // --- Links

  void set_link(std::size_t a, std::size_t b, const Link& link);
  void cut(std::size_t a, std::size_t b);
  void mend(std::size_t a, std::size_t b);
  void reset(std::size_t a, std::size_t b);
  void call_at(Time due, std::function<void()> function);

  // --- Of SimulatedKernel

  [[nodiscard]] std::uint64_t now_ns() const override;
  void fill_random(MutableBytes out) override;
  [[nodiscard]] std::vector<sockaddr_storage> addresses() const override;
  int socket(int family, int type) override;
  int bind(int fd, const sockaddr* address) override;
  int listen(int fd, int backlog) override;
  int accept(int fd, sockaddr_storage* address) override;
  int connect(int fd, const sockaddr* address) override;
  int shutdown(int fd, int how) override;
  int close(int fd) override;
  int set_option(int fd, int level, int name, const void* value, socklen_t bytes) override;
  int get_option(int fd, int level, int name, void* value, socklen_t* bytes) override;
  int local_address(int fd, sockaddr_storage* address) override;
  int peer_address(int fd, sockaddr_storage* address) override;
  std::ptrdiff_t send(int fd, std::span<const iovec> pieces) override;
  std::ptrdiff_t receive(int fd, std::span<const iovec> pieces) override;
  std::ptrdiff_t send_message(int fd, const msghdr& message) override;
  std::ptrdiff_t receive_message(int fd, msghdr& message) override;
  bool peer_closed(int fd) override;
  std::size_t add(Watcher& watcher) override;
  void remove(std::size_t watcher) override;
  int watch(std::size_t watcher, int fd, std::uint32_t events, std::uint64_t token) override;
  int change(int fd, std::uint32_t events) override;
  void unwatch(int fd) override;
  void set_deadline(std::size_t watcher, std::uint64_t deadline_ns) override;
  void polled() override;
  void looked() override;
  int poll(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns) override;
  void start(const std::shared_ptr<SimulatedTimer>& timer) override;
  std::shared_ptr<void>* kept(Keeper keeper) override;
  void start_thread(std::function<void()> function) override;
  void end_if_killed() override { programs_.end_if_killed(); }

  // Carries out the next event. False where there is none until `until_ns`, to which the clock has
  // moved then, or none at all.
  bool step(std::optional<std::uint64_t> until_ns);
  // Nothing will ever happen again by itself.
  [[nodiscard]] bool is_idle();

 private:
  struct Watching {
    Watcher* watcher;  // null after remove()
    std::shared_ptr<SimulatedProcess> process;
  };

  [[nodiscard]] Socket* find(int fd) const;
  [[nodiscard]] std::shared_ptr<Socket> share(int fd) const;
  std::shared_ptr<Socket> make_socket();
  [[nodiscard]] const std::shared_ptr<SimulatedProcess>& current_process() const;
  // nullopt: it belongs to none.
  [[nodiscard]] std::optional<std::size_t> host_of(const Socket& socket) const;
  [[nodiscard]] std::optional<std::size_t> host_of(const Socket& from, std::uint32_t address) const;
  [[nodiscard]] bool is_taken(const Socket& by, const Place& place) const;
  [[nodiscard]] Socket* listener_for(const Socket& initiator) const;
  int choose_source(Socket& socket);
  void close_sockets(SimulatedProcess& process);
  [[nodiscard]] std::uint16_t free_port();

  // Datagrams
  void send_packet(Socket& socket, std::size_t host, const Packet& packet);
  void deliver(std::uint64_t flight);
  [[nodiscard]] static bool accepts(const Socket& socket, const Packet& packet, std::size_t host);
  int change_membership(Socket& socket, bool join, const ip_mreqn& request);

  // Connecting
  void connect_to_itself(Socket& socket);
  void arrive(Socket& initiator);
  void join(Socket& initiator, const std::shared_ptr<Socket>& responder, Time due);
  void establish(Socket& socket);
  void fail(Socket& socket, int error);

  // Moving
  [[nodiscard]] bool is_lost(const LinkState& link);
  [[nodiscard]] Time delayed(Socket& socket, std::size_t bytes);
  [[nodiscard]] static bool is_readable(const Socket& socket, Time now);
  [[nodiscard]] static bool is_writable(const Socket& socket);
  void expect_readable(const Socket& socket, Time due);
  void expect_writable(const Socket& socket, Time due);
  void report(const Socket& socket);
  [[nodiscard]] std::size_t waiting(Socket& socket) const;
  void give_room(Socket& reader);
  void refuse_bytes(Socket& socket);
  void send_again(Socket& socket);

  // The end
  void abandon(Socket& socket);
  void send_end(Socket& socket);
  void reset_other(Socket& socket);
  void take_reset(Socket& socket);

  // Events
  [[nodiscard]] bool is_live(const Event& event);
  void carry_out(const Event& event);
  void dispatch(const Event& event);
  void tell(const std::shared_ptr<Socket>& socket, std::uint32_t event);

  Schedule schedule_;
  Random names_;    // for the device's own numbers
  Random choices_;  // of the test
  Links links_;
  Flights flights_;
  const bool polls_advance_;
  std::vector<std::uint32_t> hosts_;  // their addresses
  std::shared_ptr<SimulatedProcess> opening_;
  const int first_fd_;
  std::vector<std::shared_ptr<Socket>> sockets_;  // by descriptor; null where it was closed
  std::map<std::pair<std::size_t, Place>, int> listeners_;  // by host
  std::uint16_t last_port_ = 0;
  std::vector<Watching> watchers_;
  std::map<std::uint64_t, std::function<void()>> calls_;
  std::uint64_t last_call_ = 0;
  std::map<std::uint64_t, std::weak_ptr<SimulatedTimer>> timers_;
  std::uint64_t last_timer_ = 0;
  std::uint64_t carried_out_ = 0;
  std::uint64_t idle_polls_ = 0;
  bool busy_ = false;  // an event is being carried out
  bool over_ = false;
  Programs programs_;  // the last: its threads use the others
};

}  // namespace weft::simulation
