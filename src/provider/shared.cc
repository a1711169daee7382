#include "provider/shared.h"

#include <dlfcn.h>

#include "base/duration.h"
#include "base/simulated_kernel.h"
#include "device/limits.h"
#include "provider/embedded.h"

namespace weft::provider {
namespace {

// Null if the drop-in is not loaded, or is of another version: the version of the symbol changes
// with the table.
const Table* drop_in_table(const char* symbol) {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* const found = dlvsym(library, symbol, "WEFT_PRIVATE_7");
  dlclose(library);  // it stays loaded: it is linked with -z nodelete
  if (!found) return nullptr;
  return reinterpret_cast<const Table* (*)()>(found)();
}

}  // namespace

// A program that also calls the drop-in's functions must have one device for both, so the drop-in's
// table is preferred. The choice is made once and stays.
const Table& shared_embedded() {
  static const Table& table = [&]() -> const Table& {
    const Table* const drop_in = drop_in_table("weft_provider_table");
    return drop_in ? *drop_in : embedded();
  }();
  // The drop-in has another copy of what a simulation replaces.
  if (SimulatedKernel::current()) [[unlikely]]
    return embedded();
  return table;
}

const Table* drop_in_program_table() {
  return drop_in_table("weft_program_table");
}

std::uint32_t embedded_inline_bytes() {
  return device::limits::max_inline_bytes;
}

bool is_manual() {
  return shared_embedded().is_manual();
}

int wait(std::span<pollfd> entries, int timeout_ms) {
  const timespec timeout = timespec_of(std::chrono::milliseconds(timeout_ms));
  const int ready = shared_embedded().wait(entries.data(), entries.size(),
                                           timeout_ms < 0 ? nullptr : &timeout, nullptr);
  // Not in the function of the table, which throws nothing.
  if (SimulatedKernel* const kernel = SimulatedKernel::current()) [[unlikely]]
    kernel->end_if_killed();
  return ready;
}

}  // namespace weft::provider
