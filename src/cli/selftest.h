// Runs the self-test program on the drop-in libraries, and judges what it says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/finding.h"

namespace weft::cli {

// The device as programs see it: its kind and its GID table.
void show_device(const std::filesystem::path& folder, Findings& findings);

// Connect, send, write and read: between two processes here, or with `weft doctor --serve` on
// `host`. Takes a few seconds at most.
void try_device(const std::filesystem::path& folder, Findings& findings);
void try_peer(const std::filesystem::path& folder, const std::string& host, std::uint16_t port,
              Findings& findings);

// Becomes the other side. Returns only where that fails.
int serve_peers(const std::filesystem::path& folder, std::uint16_t port);

}  // namespace weft::cli
