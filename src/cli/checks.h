// The checks of `weft doctor`, one function for each subject. None needs privileges.
#pragma once

#include "cli/finding.h"

namespace weft::cli {

// RDMA adapters, their drivers, and whether this user may open them.
void check_adapters(Findings& findings);
// Whether rdma-core's libraries are installed, and their version. `folder`: of the drop-in
// libraries, which programs under `weft run` find instead; this one may be one of them.
void check_rdma_core(const std::string& folder, Findings& findings);
// The IP addresses of this host.
void check_addresses(Findings& findings);
// Limits on open files and locked memory.
void check_limits(Findings& findings);
// Which priorities the device's thread may have.
void check_priority(Findings& findings);
// System calls that a container, a sandbox or the kernel's settings forbid.
void check_sandbox(Findings& findings);
// The TCP ports by which queue pairs without rdma_cm find each other.
void check_ports(Findings& findings);
// The ports that programs on Weft have open, and who reaches them. `folder`: of the drop-in
// libraries.
void check_open_ports(const std::string& folder, Findings& findings);
// System calls that the device uses where it may.
void check_calls(Findings& findings);
// Whether memory can be watched, which two checks of `weft run --check` need.
void check_debug_registers(Findings& findings);
// WEFT_ variables that are set, and those with invalid values.
void check_environment(Findings& findings);

}  // namespace weft::cli
