// The texts of /sys/class/infiniband/weft0 that programs read, as a kernel device of this
// personality would have them.
#include "device/sysfs.h"

#include <endian.h>
#include <fmt/format.h>

#include <charconv>

#include "device/device.h"
#include "device/gid_table.h"
#include "device/lid.h"

namespace weft::device {
namespace {

// Formats 64 bits in network byte order as GUIDs and halves of GIDs appear in sysfs.
std::string group(std::uint64_t be) {
  const std::uint64_t value = be64toh(be);
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", value >> 48, value >> 32 & 0xFFFF,
                     value >> 16 & 0xFFFF, value & 0xFFFF);
}

// "gids/N", "gid_attrs/types/N" and "gid_attrs/ndevs/N", as the kernel has them per port.
std::optional<std::string> of_gid(const Device& device, std::string_view what,
                                  std::string_view index_text) {
  std::size_t index = 0;
  const char* end = index_text.data() + index_text.size();
  const auto [stopped, failed] = std::from_chars(index_text.data(), end, index);
  if (failed != std::errc() || stopped != end) return std::nullopt;
  const LocalAddress* local = address_of_row(device, index);
  if (!local) return std::nullopt;
  const ibv_gid gid = shown_gid(device, local->address);
  if (what == "gids") {
    return group(gid.global.subnet_prefix) + ":" + group(gid.global.interface_id);
  }
  if (what == "gid_attrs/types") {  // "IB/RoCE v1" is the kernel's name
    return type_of_row(device, index) == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1";
  }
  // A row of an InfiniBand port belongs to no network interface.
  if (what == "gid_attrs/ndevs" && !device.has_lids()) return local->interface;
  return std::nullopt;
}

std::optional<std::string> of_port(const Device& device, std::string_view path) {
  // Number and name, as the kernel writes its enumerations.
  if (path == "state") return "4: ACTIVE";
  if (path == "phys_state") return "5: LinkUp";
  if (path == "link_layer") return device.has_lids() ? "InfiniBand" : "Ethernet";
  if (path == "rate") return "100 Gb/sec (4X EDR)";
  if (path == "lid" || path == "sm_lid") return fmt::format("{:#x}", lid_of_port(device));
  if (path == "cap_mask") return "0x0";
  if (path == "lid_mask_count" || path == "sm_sl") return "0";
  if (path == "pkeys/0") return "0xffff";
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return of_gid(device, path.substr(0, slash), path.substr(slash + 1));
}

}  // namespace

std::optional<std::string> sysfs_text(Device& device, std::string_view path) {
  constexpr std::string_view port = "ports/1/";
  if (path.starts_with(port)) return of_port(device, path.substr(port.size()));
  if (path == "board_id" || path == "hca_type") return "weft";
  if (path == "node_type") return device.is_roce() ? "1: CA" : "4: RNIC";
  if (path == "node_desc") return "weft0";
  if (path == "node_guid" || path == "sys_image_guid") return group(device.guid_be());
  if (path == "fw_ver") return WEFT_VERSION;
  return std::nullopt;
}

}  // namespace weft::device
