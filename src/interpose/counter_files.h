// For libweft-node.so: the files that Weft has in place of the kernel's below
// /sys/class/infiniband, and among them those of counters, which change while they are open.
#pragma once

#include <string_view>

namespace weft::interpose {

// The folder that stands for /sys: libibverbs knows it. "/sys" where the library is not Weft's.
const char* sysfs_tree();

// Whether a program that opens this path opens the file of a counter.
bool is_counter_file(std::string_view path);

// Before a counter is read: what this process has counted is in the file then. Keeps errno.
void publish_counters();

// From here on publish_counters() is called when the file is read from its beginning. Programs such
// as perftest keep it open while they measure. -1 is ignored.
void watch_counter_file(int descriptor);

}  // namespace weft::interpose
