#include "device/gid_table.h"

#include "device/device.h"

namespace weft::device {
namespace {

// WEFT_GIDS=one is for programs that fail where there are several rows.
std::size_t rows_per_address(const Device& device) {
  return device.is_roce() && device.settings().gids != GidTable::one ? 2 : 1;
}

}  // namespace

std::size_t gid_table_size(const Device& device) {
  return device.addresses().size() * rows_per_address(device);
}

const LocalAddress* address_of_row(const Device& device, std::size_t index) {
  if (index >= gid_table_size(device)) return nullptr;
  return &device.addresses()[index / rows_per_address(device)];
}

// A single row is v2, because GIDs are IP addresses in both personalities.
ibv_gid_type type_of_row(const Device& device, std::size_t index) {
  const std::size_t rows = rows_per_address(device);
  return index % rows == rows - 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
}

// The v2 row, because that is what an IP packet means.
std::size_t row_of_address(const Device& device, std::size_t position) {
  const std::size_t rows = rows_per_address(device);
  return position * rows + rows - 1;
}

}  // namespace weft::device
