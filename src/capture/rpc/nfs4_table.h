// The operations of NFS version 4 and of its callbacks: their names and the formats of their
// arguments and results.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::capture {

struct Nfs4Operation {
  std::uint32_t number;
  std::string_view name;
  std::string_view arguments;  // format of xdr_format.h
  std::string_view result;     // if the status is OK
};

namespace nfs4 {

// The operations that are decoded; the others are skipped by their format.
enum Operation : std::uint32_t {
  create = 6,
  getattr = 9,
  getfh = 10,
  link = 11,
  lookup = 15,
  lookupp = 16,
  open = 18,
  openattr = 19,
  putfh = 22,
  putpubfh = 23,
  putrootfh = 24,
  read = 25,
  readdir = 26,
  readlink = 27,
  remove = 28,
  rename = 29,
  restorefh = 31,
  savefh = 32,
  secinfo = 33,
  setattr = 34,
  write = 38,
  secinfo_no_name = 52,
  sequence = 53,
};
// Of the callbacks, which have their own numbers.
inline constexpr std::uint32_t callback_sequence = 11;

}  // namespace nfs4

// Returns nullptr if the operation is unknown.
[[nodiscard]] const Nfs4Operation* find_nfs4_operation(std::uint32_t number, bool callback);
// Returns the format of what follows a status other than OK; usually nothing.
[[nodiscard]] std::string_view nfs4_failure_format(std::uint32_t number, std::uint32_t status);

}  // namespace weft::capture
