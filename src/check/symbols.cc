#include "check/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

// libbacktrace, which GCC brings along. Without it reports have names of exported functions only.
#if defined(WEFT_BACKTRACE) && __has_include(<backtrace.h>)
#define WEFT_HAS_BACKTRACE
#include <backtrace.h>
#endif

namespace weft::check {
namespace {

std::string demangled(const char* name) {
  if (!name) return {};
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return text ? text.get() : name;
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

#ifdef WEFT_HAS_BACKTRACE

// How many files this process has loaded so far.
unsigned long long loaded_files() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        *static_cast<unsigned long long*>(data) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

// libbacktrace reads the debug information of all loaded files at its first use, which takes up to
// a second, and never frees it. So this is done again only after another file was loaded.
class Reader {
 public:
  std::vector<Frame> read(std::uintptr_t address) {
    std::vector<Frame> found = ask(address);
    if (found.empty() && loaded_ != loaded_files()) {
      state_ = nullptr;
      found = ask(address);
    }
    return found;
  }

 private:
  static void ignore(void* /*data*/, const char* /*message*/, int /*error*/) {}

  std::vector<Frame> ask(std::uintptr_t address) {
    if (!state_) {
      state_ = backtrace_create_state(nullptr, 1, ignore, nullptr);
      loaded_ = loaded_files();
    }
    std::vector<Frame> frames;
    if (!state_) return frames;
    backtrace_pcinfo(
        state_, address,
        [](void* data, std::uintptr_t /*at*/, const char* file, int line, const char* function) {
          if (!function && !file) return 0;
          static_cast<std::vector<Frame>*>(data)->push_back(
              {.function = demangled(function), .file = file ? file : "", .line = line});
          return 0;
        },
        ignore, &frames);
    if (!frames.empty()) return frames;
    backtrace_syminfo(
        state_, address,
        [](void* data, std::uintptr_t /*at*/, const char* function, std::uintptr_t /*value*/,
           std::uintptr_t /*bytes*/) {
          if (!function) return;
          static_cast<std::vector<Frame>*>(data)->push_back({.function = demangled(function)});
        },
        ignore, &frames);
    return frames;
  }

  backtrace_state* state_ = nullptr;
  unsigned long long loaded_ = 0;
};

#else

class Reader {
 public:
  std::vector<Frame> read(std::uintptr_t /*address*/) { return {}; }
};

#endif

// `after_call`: the address behind the call, which may belong to the next line or function.
void add_frames(std::uintptr_t after_call, std::vector<Frame>& frames) {
  static std::mutex mutex;
  static Reader reader;
  const std::uintptr_t address = after_call - 1;
  std::vector<Frame> found;
  {
    const std::lock_guard lock(mutex);
    found = reader.read(address);
  }
  Dl_info module{};
  const bool known = dladdr(reinterpret_cast<void*>(address), &module) != 0;
  if (found.empty()) found.emplace_back();
  for (Frame& frame : found) {
    if (known && module.dli_fname) frame.module = module.dli_fname;
    if (known) frame.offset = address - reinterpret_cast<std::uintptr_t>(module.dli_fbase);
    if (known && frame.function.empty()) frame.function = demangled(module.dli_sname);
    frames.push_back(std::move(frame));
  }
}

bool is_our_module(std::string_view path) {
  const std::string_view module = base_name(path);
  return module.starts_with("libibverbs.so") || module.starts_with("librdmacm.so") ||
         module.starts_with("libweft.so") || module == "libweft-heap.so" ||
         module == "libweft-shared-heap.so";
}

bool is_ours(const Frame& frame) {
  return is_our_module(frame.module) || frame.function.starts_with("weft::") ||
         frame.function.starts_with("_Unwind_");
}

// Inline functions of verbs.h and rdma_verbs.h, which call the device.
bool is_header(const Frame& frame) {
  const std::string_view file = base_name(frame.file);
  return file == "verbs.h" || file == "rdma_verbs.h" || file == "rdma_cma.h";
}

bool is_start(const Frame& frame) {
  return frame.function.starts_with("__libc_start") || frame.function == "_start" ||
         frame.function == "start_thread" || frame.function.starts_with("__clone") ||
         frame.function == "clone";
}

}  // namespace

std::vector<Frame> frames_of(const Stack& stack) {
  std::vector<Frame> all;
  for (const std::uintptr_t address : stack) {
    if (address != 0) add_frames(address, all);
  }
  const auto first = std::find_if(all.begin(), all.end(), [](const Frame& frame) {
    return !is_ours(frame) && !is_header(frame);
  });
  // A call from within Weft's libraries has no other frame.
  if (first == all.end()) return all;
  all.erase(all.begin(), first);
  const auto start = std::find_if(all.begin() + 1, all.end(), is_start);
  all.erase(start, all.end());
  return all;
}

// The device may be a part of the program, whose functions only the debug information names.
bool is_from_weft(const Stack& stack) {
  for (const std::uintptr_t address : stack) {
    std::vector<Frame> frames;
    if (address != 0) add_frames(address, frames);
    if (frames.empty() || base_name(frames.front().module).starts_with("libc.so")) continue;
    return std::any_of(frames.begin(), frames.end(), [](const Frame& frame) {
      return is_ours(frame) || frame.function.starts_with("weft_guarded");
    });
  }
  return false;
}

std::string to_string(const Frame& frame) {
  std::string text = frame.function.empty() ? "?" : frame.function;
  if (!frame.file.empty()) return text + fmt::format(" at {}:{}", frame.file, frame.line);
  if (!frame.module.empty()) text += fmt::format(" in {}+{:#x}", frame.module, frame.offset);
  return text;
}

}  // namespace weft::check
