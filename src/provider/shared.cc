#include "provider/shared.h"

#include <dlfcn.h>

#include "base/duration.h"
#include "provider/embedded.h"

namespace weft::provider {
namespace {

// The symbol's version changes with the table.
const Table* table_of_the_drop_in() {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* const found = dlvsym(library, "weft_provider_table", "WEFT_PRIVATE_3");
  dlclose(library);  // stays: it cannot be unloaded
  if (!found) return nullptr;
  return reinterpret_cast<const Table* (*)()>(found)();
}

}  // namespace

const Table& shared_embedded() {
  static const Table& table = [&]() -> const Table& {
    const Table* const theirs = table_of_the_drop_in();
    return theirs ? *theirs : embedded();
  }();
  return table;
}

int wait(std::span<pollfd> entries, int timeout_ms) {
  const timespec timeout = timespec_of(std::chrono::milliseconds(timeout_ms));
  return shared_embedded().wait(entries.data(), entries.size(), timeout_ms < 0 ? nullptr : &timeout,
                                nullptr);
}

}  // namespace weft::provider
