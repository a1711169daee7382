// Runs the self-test program on the drop-in libraries and turns its output into findings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/finding.h"

namespace weft::cli {

// Reports the device as programs see it: its kind and its GID table.
void show_device(const std::filesystem::path& folder, Findings& findings);

// Connect, send, write and read: between two processes on this machine, or with `weft doctor
// --serve` on `host`. Limited to some seconds.
void try_device(const std::filesystem::path& folder, Findings& findings);
void try_peer(const std::filesystem::path& folder, const std::string& host, std::uint16_t port,
              Findings& findings);

// Replaces this process by the other side of try_peer(). Returns only if that fails.
int serve_peers(const std::filesystem::path& folder, std::uint16_t port);

}  // namespace weft::cli
