// A server that uses one number as a TCP port and as a port of rdma_cm, as iSCSI targets do. It
// greets each TCP client and sends back its first line; an RDMA client is served as rdma_server(1)
// does it.
//
//   shared_port PORT tcp|rdma events|thread|child|closed TCP_CLIENTS RDMA_CLIENTS
//
// The second argument is what listens first. `events`: the TCP socket does not block and is in an
// epoll set. `thread`: a thread waits in accept(2). `child`: a child of fork(2) does. `closed`: the
// TCP socket is closed after its clients. Ends when it has served that many clients.

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <thread>

#include "interop/need.h"

namespace {

constexpr std::string_view greeting = "welcome\n";

int listen_by_tcp(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  NEED(listener >= 0);
  const int on = 1;
  NEED(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  NEED(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  NEED(listen(listener, 16) == 0);
  return listener;
}

rdma_cm_id* listen_by_rdma(const char* port) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* where = nullptr;
  NEED(rdma_getaddrinfo("0.0.0.0", port, &hints, &where) == 0);
  ibv_qp_init_attr wanted{};
  wanted.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 16};
  wanted.sq_sig_all = 1;
  rdma_cm_id* listener = nullptr;
  NEED(rdma_create_ep(&listener, where, nullptr, &wanted) == 0);
  rdma_freeaddrinfo(where);
  NEED(rdma_listen(listener, 4) == 0);
  return listener;
}

void serve_one_by_rdma(rdma_cm_id* listener) {
  rdma_cm_id* id = nullptr;
  NEED(rdma_get_request(listener, &id) == 0);
  std::array<char, 16> message{};
  ibv_mr* const region = rdma_reg_msgs(id, message.data(), message.size());
  NEED(region);
  NEED(rdma_post_recv(id, nullptr, message.data(), message.size(), region) == 0);
  NEED(rdma_accept(id, nullptr) == 0);
  ibv_wc done{};
  NEED(rdma_get_recv_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS);
  NEED(rdma_post_send(id, nullptr, message.data(), message.size(), nullptr, IBV_SEND_INLINE) == 0);
  NEED(rdma_get_send_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS);
  std::printf("an RDMA client was served\n");
  rdma_disconnect(id);
  rdma_dereg_mr(region);
  rdma_destroy_ep(id);
}

void serve_one_by_tcp(int client) {
  NEED(write(client, greeting.data(), greeting.size()) == static_cast<ssize_t>(greeting.size()));
  std::string line;
  for (char next = 0; next != '\n' && read(client, &next, 1) == 1;) line += next;
  NEED(write(client, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  std::printf("a TCP client was served: %s", line.c_str());
  close(client);
}

// The descriptor blocks: an accepted socket does not inherit O_NONBLOCK.
void accept_by_events(int listener, int clients) {
  NEED(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
  const int set = epoll_create1(0);
  epoll_event wanted{.events = EPOLLIN, .data = {}};
  NEED(epoll_ctl(set, EPOLL_CTL_ADD, listener, &wanted) == 0);
  while (clients > 0) {
    epoll_event found{};
    NEED(epoll_wait(set, &found, 1, -1) == 1);
    sockaddr_in peer{};
    socklen_t bytes = sizeof peer;
    const int client = accept(listener, reinterpret_cast<sockaddr*>(&peer), &bytes);
    if (client < 0) {
      NEED(errno == EAGAIN);
      continue;
    }
    NEED(bytes == sizeof peer && peer.sin_family == AF_INET);
    serve_one_by_tcp(client);
    --clients;
  }
  close(set);
}

void accept_in_thread(int listener, int clients) {
  while (clients-- > 0) {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    NEED(client >= 0);
    serve_one_by_tcp(client);
  }
}

// The child has no device: it gets every client.
void accept_in_child(int listener, int clients) {
  const pid_t child = fork();
  NEED(child >= 0);
  if (child == 0) {
    accept_in_thread(listener, clients);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  NEED(waitpid(child, &status, 0) == child);
  NEED(status == 0);
}

}  // namespace

int main(int argc, char** argv) {
  NEED(argc == 6);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int port = std::atoi(argv[1]);
  const bool tcp_first = std::string_view(argv[2]) == "tcp";
  const std::string_view how = argv[3];
  const int tcp_clients = std::atoi(argv[4]);
  int listener = tcp_first ? listen_by_tcp(port) : -1;
  rdma_cm_id* const id = listen_by_rdma(argv[1]);
  if (!tcp_first) listener = listen_by_tcp(port);
  std::printf("both listen\n");
  std::thread rdma([id, left = std::atoi(argv[5])]() mutable {
    while (left-- > 0) serve_one_by_rdma(id);
  });
  if (how == "events") accept_by_events(listener, tcp_clients);
  if (how == "thread" || how == "closed") accept_in_thread(listener, tcp_clients);
  if (how == "closed") {
    const int file = open("/dev/null", O_RDONLY);
    for (const int descriptor : {file, listener}) {
      errno = EACCES;
      NEED(close(descriptor) == 0);
      NEED(errno == EACCES);  // a call that succeeds leaves it alone
    }
    std::printf("closed\n");
  }
  if (how == "child") accept_in_child(listener, tcp_clients);
  rdma.join();
  rdma_destroy_ep(id);
  if (how != "closed") close(listener);
  return 0;
}
