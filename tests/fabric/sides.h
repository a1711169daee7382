// Connects both ends of a stream in one process by libfabric's calls.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::fabric {

inline constexpr int patience_ms = 60'000;

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

struct CloseFid {
  template <typename T>
  void operator()(T* object) const {
    EXPECT_EQ(fi_close(&object->fid), 0);
  }
};
template <typename T>
using Opened = std::unique_ptr<T, CloseFid>;

// The result of fi_getinfo with the provider's name in the hints.
[[nodiscard]] Info hints(std::uint32_t protocol = FI_PROTO_UNSPEC);
[[nodiscard]] Info get_info(const char* node, const char* service, std::uint64_t flags,
                            const fi_info* wanted);

struct Event {
  std::uint32_t type = 0;
  fid_t fid = nullptr;
  Info info{};
  std::string data{};
};

// A fabric with a domain and one event queue for all endpoints.
struct Ground {
  explicit Ground(const fi_info& info);
  // The next event, which must not be an error.
  [[nodiscard]] Event next();
  [[nodiscard]] Opened<fid_ep> endpoint(fi_info& info, void* context = nullptr);
  [[nodiscard]] Opened<fid_pep> listener(fi_info& info);

  Opened<fid_fabric> fabric;
  Opened<fid_domain> domain;
  Opened<fid_eq> events;
};

// A listener and the two ends of one stream.
struct Sides {
  explicit Sides(std::uint32_t protocol = FI_PROTO_UNSPEC);

  Info passive_info;
  Ground ground;
  Opened<fid_pep> listener;
  Info active_info;
  Opened<fid_ep> active;
  Opened<fid_ep> passive;
};

// The address of a listener, in the form that fi_getinfo takes.
[[nodiscard]] std::string port_of(fid_pep& listener);
[[nodiscard]] Info info_to(fid_pep& listener, std::uint32_t protocol = FI_PROTO_UNSPEC);

[[nodiscard]] int fd_of(fid& object);
[[nodiscard]] bool becomes_readable(int fd, int timeout_ms = patience_ms);

// Waits for the descriptor when a call returns -FI_EAGAIN.
void send_all(fid_ep& endpoint, std::string_view text);
[[nodiscard]] std::string receive_some(fid_ep& endpoint, std::size_t bytes);

// Runs each test with both protocols.
class BothProtocols : public testing::TestWithParam<std::uint32_t> {};
[[nodiscard]] std::string protocol_name(const testing::TestParamInfo<std::uint32_t>& info);

#define WEFT_BOTH_PROTOCOLS(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(All, suite, testing::Values(FI_PROTO_RSTREAM, FI_PROTO_IWARP), \
                           protocol_name)

}  // namespace weft::fabric
