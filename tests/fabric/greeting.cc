// The smallest program of a stream socket endpoint, in plain libfabric: a server that sends a
// greeting and expects it back, and a client that sends back what it receives.
//
//   greeting server [iwarp]        prints its port, serves one client
//   greeting client PORT [iwarp]
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer of this GCC looks for the thread-local memory of libraries that libfabric loads at
// a wrong place.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "intercept_tls_get_addr=0";
}
#endif

namespace {

constexpr std::string_view greeting = "hello stream!";
constexpr int patience_ms = 60'000;

ssize_t check(ssize_t answer, const char* what) {
  if (answer >= 0) return answer;
  std::fprintf(stderr, "%s: %s\n", what, fi_strerror(static_cast<int>(-answer)));
  std::exit(1);
}

struct Program {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* events = nullptr;
  fid_ep* endpoint = nullptr;

  void open(const char* node, const char* service, std::uint64_t flags, bool iwarp) {
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("weft");
    hints->ep_attr->type = FI_EP_SOCK_STREAM;
    hints->ep_attr->protocol = iwarp ? FI_PROTO_IWARP : FI_PROTO_UNSPEC;
    hints->caps = FI_MSG;
    check(fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fi_eq_attr attributes{};
    attributes.wait_obj = FI_WAIT_UNSPEC;
    check(fi_eq_open(fabric, &attributes, &events, nullptr), "fi_eq_open");
  }

  void open_endpoint(fi_info* of) {
    check(fi_domain(fabric, of, &domain, nullptr), "fi_domain");
    check(fi_endpoint(domain, of, &endpoint, nullptr), "fi_endpoint");
    check(fi_ep_bind(endpoint, &events->fid, 0), "fi_ep_bind");
    check(fi_enable(endpoint), "fi_enable");
  }

  fi_eq_cm_entry await(std::uint32_t expected, const char* what) {
    fi_eq_cm_entry entry{};
    std::uint32_t event = 0;
    const ssize_t answer = fi_eq_sread(events, &event, &entry, sizeof entry, patience_ms, 0);
    if (answer == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(events, &error, 0);
      check(-error.err, what);
    }
    check(answer, what);
    if (event != expected) check(-FI_EOTHER, what);
    return entry;
  }

  void sleep() const {
    pollfd entry{-1, POLLIN, 0};
    check(fi_control(&endpoint->fid, FI_GETWAIT, &entry.fd), "FI_GETWAIT");
    fid* ids[] = {&endpoint->fid};
    if (fi_trywait(fabric, ids, 1) == 0 && poll(&entry, 1, patience_ms) != 1) {
      check(-FI_ETIMEDOUT, "poll");
    }
  }

  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = fi_send(endpoint, text.data(), text.size(), nullptr, 0, nullptr);
      if (sent == -FI_EAGAIN) {
        sleep();
      } else {
        text.remove_prefix(static_cast<std::size_t>(check(sent, "fi_send")));
      }
    }
  }

  std::string receive() const {
    std::string text(greeting.size(), '\0');
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t got =
          fi_recv(endpoint, text.data() + done, text.size() - done, nullptr, 0, nullptr);
      if (got == -FI_EAGAIN) {
        sleep();
      } else {
        if (check(got, "fi_recv") == 0) check(-FI_ENODATA, "the stream ends");
        done += static_cast<std::size_t>(got);
      }
    }
    return text;
  }

  void end() {
    check(fi_close(&endpoint->fid), "fi_close");
    check(fi_close(&events->fid), "fi_close");
    check(fi_close(&domain->fid), "fi_close");
    check(fi_close(&fabric->fid), "fi_close");
    fi_freeinfo(info);
  }
};

int serve(bool iwarp) {
  Program program;
  program.open("127.0.0.1", "0", FI_SOURCE, iwarp);
  fid_pep* listener = nullptr;
  check(fi_passive_ep(program.fabric, program.info, &listener, nullptr), "fi_passive_ep");
  check(fi_pep_bind(listener, &program.events->fid, 0), "fi_pep_bind");
  check(fi_listen(listener), "fi_listen");
  sockaddr_in name{};
  std::size_t bytes = sizeof name;
  check(fi_getname(&listener->fid, &name, &bytes), "fi_getname");
  std::printf("%u\n", ntohs(name.sin_port));
  std::fflush(stdout);

  const fi_eq_cm_entry request = program.await(FI_CONNREQ, "FI_CONNREQ");
  program.open_endpoint(request.info);
  check(fi_accept(program.endpoint, nullptr, 0), "fi_accept");
  program.await(FI_CONNECTED, "FI_CONNECTED");
  fi_freeinfo(request.info);
  program.send(greeting);
  const bool same = program.receive() == greeting;
  check(fi_shutdown(program.endpoint, 0), "fi_shutdown");
  std::printf("%s\n", same ? "the greeting came back" : "something else came back");
  check(fi_close(&listener->fid), "fi_close");
  program.end();
  return same ? 0 : 1;
}

int connect(const char* port, bool iwarp) {
  Program program;
  program.open("127.0.0.1", port, 0, iwarp);
  program.open_endpoint(program.info);
  check(fi_connect(program.endpoint, program.info->dest_addr, nullptr, 0), "fi_connect");
  program.await(FI_CONNECTED, "FI_CONNECTED");
  const std::string got = program.receive();
  program.send(got);
  program.await(FI_SHUTDOWN, "FI_SHUTDOWN");
  std::printf("%s\n", got.c_str());
  program.end();
  return got == greeting ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  const bool iwarp = std::string_view(words[count - 1]) == "iwarp";
  if (what == "server") return serve(iwarp);
  if (what == "client" && count > 2) return connect(words[2], iwarp);
  std::fprintf(stderr, "usage: greeting server|client PORT [iwarp]\n");
  return 2;
}
