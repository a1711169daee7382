#include "fabric/sides.h"

#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cstdlib>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer of this GCC looks for the thread-local memory of libraries that libfabric loads at
// a wrong place, and reports leaks there.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "intercept_tls_get_addr=0";
}
#endif

namespace weft::fabric {
namespace {

// libfabric reads these at its first call.
[[maybe_unused]] const bool environment_is_set = [] {
  setenv("FI_PROVIDER_PATH", WEFT_FABRIC_FOLDER, 1);
  setenv("FI_PROVIDER", "weft", 1);
  return true;
}();

}  // namespace

Info hints(std::uint32_t protocol) {
  Info wanted(fi_allocinfo());
  wanted->fabric_attr->prov_name = strdup("weft");
  wanted->ep_attr->type = FI_EP_SOCK_STREAM;
  wanted->ep_attr->protocol = protocol;
  wanted->caps = FI_MSG;
  return wanted;
}

Info get_info(const char* node, const char* service, std::uint64_t flags, const fi_info* wanted) {
  fi_info* found = nullptr;
  EXPECT_EQ(fi_getinfo(FI_VERSION(1, 17), node, service, flags, wanted, &found), 0);
  return Info(found);
}

Ground::Ground(const fi_info& info) {
  fid_fabric* opened_fabric = nullptr;
  EXPECT_EQ(fi_fabric(info.fabric_attr, &opened_fabric, nullptr), 0);
  fabric.reset(opened_fabric);
  fid_domain* opened_domain = nullptr;
  EXPECT_EQ(fi_domain(fabric.get(), const_cast<fi_info*>(&info), &opened_domain, nullptr), 0);
  domain.reset(opened_domain);
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* opened_events = nullptr;
  EXPECT_EQ(fi_eq_open(fabric.get(), &attributes, &opened_events, nullptr), 0);
  events.reset(opened_events);
}

Event Ground::next() {
  std::array<char, 600> buffer{};
  Event event;
  const ssize_t bytes =
      fi_eq_sread(events.get(), &event.type, buffer.data(), buffer.size(), patience_ms, 0);
  EXPECT_GE(bytes, static_cast<ssize_t>(sizeof(fi_eq_cm_entry)));
  if (bytes < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return event;
  fi_eq_cm_entry entry{};
  std::memcpy(&entry, buffer.data(), sizeof entry);
  event.fid = entry.fid;
  event.info.reset(entry.info);
  event.data.assign(buffer.data() + sizeof entry, static_cast<std::size_t>(bytes) - sizeof entry);
  return event;
}

Opened<fid_ep> Ground::endpoint(fi_info& info, void* context) {
  fid_ep* opened = nullptr;
  EXPECT_EQ(fi_endpoint(domain.get(), &info, &opened, context), 0);
  EXPECT_EQ(fi_ep_bind(opened, &events->fid, 0), 0);
  return Opened<fid_ep>(opened);
}

Opened<fid_pep> Ground::listener(fi_info& info) {
  fid_pep* opened = nullptr;
  EXPECT_EQ(fi_passive_ep(fabric.get(), &info, &opened, nullptr), 0);
  EXPECT_EQ(fi_pep_bind(opened, &events->fid, 0), 0);
  EXPECT_EQ(fi_listen(opened), 0);
  return Opened<fid_pep>(opened);
}

Sides::Sides(std::uint32_t protocol)
    : passive_info(get_info("127.0.0.1", "0", FI_SOURCE, hints(protocol).get())),
      ground(*passive_info),
      listener(ground.listener(*passive_info)),
      active_info(info_to(*listener, protocol)),
      active(ground.endpoint(*active_info)) {
  EXPECT_EQ(fi_connect(active.get(), active_info->dest_addr, nullptr, 0), 0);
  const Event request = ground.next();
  EXPECT_EQ(request.type, FI_CONNREQ);
  EXPECT_EQ(request.fid, &listener->fid);
  passive = ground.endpoint(*request.info);
  EXPECT_EQ(fi_accept(passive.get(), nullptr, 0), 0);
  EXPECT_EQ(ground.next().type, FI_CONNECTED);
  EXPECT_EQ(ground.next().type, FI_CONNECTED);
}

std::string port_of(fid_pep& listener) {
  sockaddr_in address{};
  std::size_t bytes = sizeof address;
  EXPECT_EQ(fi_getname(&listener.fid, &address, &bytes), 0);
  EXPECT_NE(address.sin_port, 0);
  return std::to_string(ntohs(address.sin_port));
}

Info info_to(fid_pep& listener, std::uint32_t protocol) {
  return get_info("127.0.0.1", port_of(listener).c_str(), 0, hints(protocol).get());
}

int fd_of(fid& object) {
  int fd = -1;
  EXPECT_EQ(fi_control(&object, FI_GETWAIT, &fd), 0);
  return fd;
}

bool becomes_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

void send_all(fid_ep& endpoint, std::string_view text) {
  const int fd = fd_of(endpoint.fid);
  while (!text.empty()) {
    const ssize_t sent = fi_send(&endpoint, text.data(), text.size(), nullptr, 0, nullptr);
    if (sent == -FI_EAGAIN) {
      ASSERT_TRUE(becomes_readable(fd));
      continue;
    }
    ASSERT_GT(sent, 0);
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string receive_some(fid_ep& endpoint, std::size_t bytes) {
  const int fd = fd_of(endpoint.fid);
  std::string got(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = fi_recv(&endpoint, got.data() + done, bytes - done, nullptr, 0, nullptr);
    if (count == -FI_EAGAIN) {
      if (!becomes_readable(fd)) break;
      continue;
    }
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  got.resize(done);
  return got;
}

std::string protocol_name(const testing::TestParamInfo<std::uint32_t>& info) {
  return info.param == FI_PROTO_IWARP ? "Iwarp" : "Rstream";
}

}  // namespace weft::fabric
