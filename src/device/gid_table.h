// The rows of the GID table. As adapters for RoCE show it, each address has two rows in roce: first
// as RoCE v1, then as RoCE v2. So programs that search for a usable row find one, and those that
// take index 0 or 1 without looking reach the same address. In iwarp each address has one row.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "device/addresses.h"

namespace weft::device {

class Device;

[[nodiscard]] std::size_t gid_table_size(const Device& device);
// Null for an index beyond the table.
[[nodiscard]] const LocalAddress* address_of_row(const Device& device, std::size_t index);
// What the row claims to be. All rows of an address work alike, because packets have one format.
[[nodiscard]] ibv_gid_type type_of_row(const Device& device, std::size_t index);
// The RoCE v2 row of the address at this position of Device::addresses().
[[nodiscard]] std::size_t row_of_address(const Device& device, std::size_t position);

}  // namespace weft::device
