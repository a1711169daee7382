// What `weft doctor` looks at, one function per subject. None of them needs privileges.
#pragma once

#include "cli/finding.h"

namespace weft::cli {

// RDMA adapters, their drivers, and what a program could open.
void check_adapters(Findings& findings);
// rdma-core's libraries.
void check_rdma_core(Findings& findings);
// The addresses of this host.
void check_addresses(Findings& findings);
void check_limits(Findings& findings);
// What a container, a sandbox or the kernel's settings forbid.
void check_sandbox(Findings& findings);
// The TCP ports that queue pairs are found by.
void check_ports(Findings& findings);
// WEFT_ variables with wrong values.
void check_environment(Findings& findings);

}  // namespace weft::cli
