// Lists the RDMA devices and their capabilities.
//
// device_info [PEER]       also prints the GID to use for the peer's address
#include <cstdio>
#include <exception>
#include <weft/verbs.hpp>

namespace {

void show(const weft::verbs::Device& device, const char* peer) {
  const auto context = device.open();
  const auto attributes = context.query();
  std::printf("%s (%s backend), GUID %s\n", device.name().c_str(),
              std::string(weft::verbs::to_string(device.backend())).c_str(),
              device.guid().to_string().c_str());
  std::printf("  queue pairs %d, completion queues %d, memory regions %d\n", attributes.max_qp,
              attributes.max_cq, attributes.max_mr);
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    const auto port = context.query_port(static_cast<std::uint8_t>(number));
    std::printf("  port %d: %s, MTU %d, %.1f Gb/s\n", number,
                port.is_usable() ? "active" : "not active",
                weft::verbs::mtu_bytes(port.active_mtu()), port.lane_gbps() * port.lanes());
  }
  for (const auto& row : context.gids()) {
    std::printf("  GID %u of port %u: %s %s\n", row.index, row.port, row.gid.to_string().c_str(),
                row.interface_name().c_str());
  }
  if (!peer) return;
  const auto choice = context.best_gid(peer);
  std::printf("  to %s: GID %u, because %s\n", peer, choice.entry.index, choice.reason.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  try {
    for (const auto& device : weft::verbs::devices()) {
      show(device, count > 1 ? arguments[1] : nullptr);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_info: %s\n", error.what());
    return 1;
  }
}
