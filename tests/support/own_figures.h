// What this process holds, as the kernel lists it in /proc.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace weft::test {

inline std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Without that of the folder itself, which is open while its entries are counted.
inline std::size_t own_descriptors() {
  return entries_of("/proc/self/fd") - 1;
}

inline std::size_t own_threads() {
  return entries_of("/proc/self/task");
}

// The second number of statm, in pages.
inline long own_resident_kb() {
  std::ifstream file("/proc/self/statm");
  long size = 0;
  long resident = 0;
  file >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace weft::test
