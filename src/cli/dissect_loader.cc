// Loads the library of `weft dissect`.
#include <dlfcn.h>
#include <fmt/format.h>

#include "cli/dissect.h"
#include "cli/libraries.h"
#include "cli/terminal.h"

namespace weft::cli {
namespace {

constexpr int unusable = 2;
constexpr const char* library = "libweft-dissect.so";

}  // namespace

int dissect(const DissectOptions& options) {
  // The capture code and its libraries are apart, so that the other commands start without them.
  const auto folder = library_folder(library);
  if (folder.empty()) {
    print_error(
        fmt::format("{}, which holds the command dissect, is not beside this program, in "
                    "../lib/weft or ../" WEFT_LIBDIR "/weft; build all of Weft (`./dev "
                    "build`) or install it again",
                    library));
    return unusable;
  }
  // Never closed: it handles signals until the program ends.
  // RTLD_NOW: a missing symbol is an error here, and not in the middle of a trace.
  void* handle = ::dlopen((folder / library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    print_error(fmt::format("cannot load {}: {}", library, ::dlerror()));
    return unusable;
  }
  const auto call = reinterpret_cast<decltype(&weft_dissect)>(::dlsym(handle, "weft_dissect"));
  // No symbol of this name: the library is of a release that had another interface.
  if (!call) {
    print_error(fmt::format("{} in {} is not of this release; build or install it again", library,
                            folder.string()));
    return unusable;
  }
  return call(WEFT_VERSION, options);
}

}  // namespace weft::cli
