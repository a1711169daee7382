// The physical memory of a process, by what it is used for: proc_pid_smaps(5).
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <array>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace weft::bench {

// In KiB. Of what processes share, each has its part.
struct ResidentMemory {
  enum Kind { heap, anonymous, rings, inboxes, grants, files, kinds };
  static constexpr std::array<const char*, kinds> names{
      "heap", "heaps of threads", "rings", "inboxes of the device", "table of regions", "files"};

  std::array<double, kinds> by_kind{};
  double page_tables = 0;  // of the kernel; not in the sum

  [[nodiscard]] double sum() const {
    double all = 0;
    for (const double one : by_kind) all += one;
    return all;
  }
  // Memory of both, or what is left of it.
  ResidentMemory& add(const ResidentMemory& other, double factor) {
    for (std::size_t i = 0; i < kinds; ++i) by_kind[i] += factor * other.by_kind[i];
    page_tables += factor * other.page_tables;
    return *this;
  }

  static ResidentMemory of(pid_t process);

 private:
  // `line`: the first one of a mapping, which ends with its name.
  static Kind kind_of(const std::string& line) {
    if (line.find("[heap]") != std::string::npos) return heap;
    if (line.find("memfd:weft-ring") != std::string::npos) return rings;
    if (line.find("memfd:weft-inbox") != std::string::npos) return inboxes;
    if (line.find("memfd:weft-grants") != std::string::npos) return grants;
    constexpr std::size_t name_at = 73;
    return line.size() <= name_at ? anonymous : files;
  }
};

inline ResidentMemory ResidentMemory::of(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/smaps", process));
  std::ifstream status(fmt::format("/proc/{}/status", process));
  if (!maps || !status) throw std::runtime_error("the memory of a process is not known");
  const auto number_in = [](const std::string& line) {
    return std::stod(line.substr(line.find(':') + 1));
  };
  ResidentMemory memory;
  Kind kind = files;
  for (std::string line; std::getline(maps, line);) {
    // Fields of a mapping begin with a capital letter, and its first line with an address.
    if (line.starts_with("Pss:")) {
      memory.by_kind[kind] += number_in(line);
    } else if (line[0] < 'A' || line[0] > 'Z') {
      kind = kind_of(line);
    }
  }
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPTE:")) memory.page_tables = number_in(line);
  }
  return memory;
}

}  // namespace weft::bench
