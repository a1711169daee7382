// libweft-node.so, which `weft run` loads into programs. The device has no node below
// /dev/infiniband, but some programs look for it before they use a device (UCX: stat(2) must find a
// character device, access(2) must grant reading and writing). For exactly this path, the functions
// of the C library that look at files or open them answer as for /dev/null. Everything else is
// passed on unchanged.
//
// The same goes for the kernel's folders /sys/class/infiniband, …_verbs and …_mad, for which
// libibverbs has a replacement (ibv_get_sysfs_path()): scripts and programs such as ibstat look
// there for devices.
//
// It links no other library of Weft, so that programs without RDMA are not slowed down. The names
// are declared here and not by headers of the C library, which define some of them as macros or
// inline functions, depending on its version.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <string_view>
#include <type_traits>

#include "interpose/counter_files.h"

#define WEFT_NODE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::string_view node = "/dev/infiniband/uverbs0";

// The folders of the kernel for RDMA devices. On a machine with adapters, too, programs under `weft
// run` see weft0 only.
constexpr std::string_view classes = "/sys/class/infiniband";
constexpr std::string_view endings[] = {"", "_verbs", "_mad"};

bool is_in_classes(std::string_view path) {
  if (!path.starts_with(classes)) return false;
  const std::string_view rest = path.substr(classes.size());
  for (const std::string_view ending : endings) {
    if (!rest.starts_with(ending)) continue;
    const std::string_view behind = rest.substr(ending.size());
    if (behind.empty() || behind.front() == '/') return true;
  }
  return false;
}

// The path that is used instead of the one that the program has named.
class Seen {
 public:
  explicit Seen(const char* path) : path_(path) {
    if (!path) return;
    const std::string_view wanted = path;
    if (wanted == node) path_ = "/dev/null";
    if (!is_in_classes(wanted)) return;
    const int saved = errno;
    const std::string_view root = weft::interpose::sysfs_tree();
    errno = saved;
    const std::string_view rest = wanted.substr(std::string_view("/sys").size());
    // A path that is too long keeps its own form, and the kernel answers for it.
    if (root.size() + rest.size() >= sizeof text_) return;
    root.copy(text_, root.size());
    rest.copy(text_ + root.size(), rest.size());
    text_[root.size() + rest.size()] = '\0';
    path_ = text_;
  }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
  // Valid as long as this object.
  [[nodiscard]] const char* path() const { return path_; }

  // The same for a call that opens the file. What the file has to tell is there then.
  [[nodiscard]] const char* to_open() {
    is_counter_ = path_ && weft::interpose::is_counter_file(path_);
    if (is_counter_) weft::interpose::publish_counters();
    return path_;
  }
  // Returns the descriptor that this call returns, or -1.
  [[nodiscard]] int opened(int descriptor) const {
    if (is_counter_) weft::interpose::watch_counter_file(descriptor);
    return descriptor;
  }

 private:
  const char* path_;
  bool is_counter_ = false;
  char text_[512];
};

// The function that the next library has; null where its version of the C library has none.
template <typename Signature>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}

  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    auto* found = found_.load(std::memory_order_relaxed);
    if (!found) {
      found = reinterpret_cast<Signature*>(dlsym(RTLD_NEXT, name_));
      // Several threads may look up the name at once; all of them store the same address.
      found_.store(found, std::memory_order_relaxed);
    }
    using Result = decltype(found(arguments...));
    if (found) return found(arguments...);
    errno = ENOSYS;
    return failure<Result>();
  }

 private:
  template <typename Result>
  static Result failure() {
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }

  const char* name_;
  std::atomic<Signature*> found_{nullptr};
};

// O_CREAT or O_TMPFILE: only then is there a third argument. O_TMPFILE includes O_DIRECTORY.
constexpr int creates = 0100;
constexpr int makes_temporary = 020000000;

bool has_mode(int flags) {
  return (flags & (creates | makes_temporary)) != 0;
}

}  // namespace

// The structures are passed through, so their types do not matter.
#define WEFT_NODE_PATH(name)                                    \
  WEFT_NODE_EXPORT int name(const char*, void*);                \
  int name(const char* path, void* result) {                    \
    static constinit Next<int(const char*, void*)> next{#name}; \
    return next(Seen(path).path(), result);                     \
  }
#define WEFT_NODE_OLD_PATH(name)                                     \
  WEFT_NODE_EXPORT int name(int, const char*, void*);                \
  int name(int version, const char* path, void* result) {            \
    static constinit Next<int(int, const char*, void*)> next{#name}; \
    return next(version, Seen(path).path(), result);                 \
  }
#define WEFT_NODE_AT(name)                                                \
  WEFT_NODE_EXPORT int name(int, const char*, void*, int);                \
  int name(int folder, const char* path, void* result, int flags) {       \
    static constinit Next<int(int, const char*, void*, int)> next{#name}; \
    return next(folder, Seen(path).path(), result, flags);                \
  }
#define WEFT_NODE_OLD_AT(name)                                                   \
  WEFT_NODE_EXPORT int name(int, int, const char*, void*, int);                  \
  int name(int version, int folder, const char* path, void* result, int flags) { \
    static constinit Next<int(int, int, const char*, void*, int)> next{#name};   \
    return next(version, folder, Seen(path).path(), result, flags);              \
  }
// access(2) and its relatives.
#define WEFT_NODE_NUMBER(name)                                \
  WEFT_NODE_EXPORT int name(const char*, int);                \
  int name(const char* path, int number) {                    \
    static constinit Next<int(const char*, int)> next{#name}; \
    return next(Seen(path).path(), number);                   \
  }
#define WEFT_NODE_OPEN_CHECKED(name)                          \
  WEFT_NODE_EXPORT int name(const char*, int);                \
  int name(const char* path, int flags) {                     \
    static constinit Next<int(const char*, int)> next{#name}; \
    Seen seen(path);                                          \
    return seen.opened(next(seen.to_open(), flags));          \
  }
#define WEFT_NODE_OPEN(name)                                               \
  WEFT_NODE_EXPORT int name(const char*, int, ...);                        \
  int name(const char* path, int flags, ...) {                             \
    static constinit Next<int(const char*, int, ...)> next{#name};         \
    Seen seen(path);                                                       \
    if (!has_mode(flags)) return seen.opened(next(seen.to_open(), flags)); \
    va_list more;                                                          \
    va_start(more, flags);                                                 \
    const unsigned mode = va_arg(more, unsigned);                          \
    va_end(more);                                                          \
    return next(seen.path(), flags, mode);                                 \
  }
#define WEFT_NODE_OPEN_AT(name)                                                    \
  WEFT_NODE_EXPORT int name(int, const char*, int, ...);                           \
  int name(int folder, const char* path, int flags, ...) {                         \
    static constinit Next<int(int, const char*, int, ...)> next{#name};            \
    Seen seen(path);                                                               \
    if (!has_mode(flags)) return seen.opened(next(folder, seen.to_open(), flags)); \
    va_list more;                                                                  \
    va_start(more, flags);                                                         \
    const unsigned mode = va_arg(more, unsigned);                                  \
    va_end(more);                                                                  \
    return next(folder, seen.path(), flags, mode);                                 \
  }

WEFT_NODE_PATH(stat)
WEFT_NODE_PATH(stat64)
WEFT_NODE_PATH(lstat)
WEFT_NODE_PATH(lstat64)
WEFT_NODE_AT(fstatat)
WEFT_NODE_AT(fstatat64)
// Programs that were built with a C library before 2.33 call these.
WEFT_NODE_OLD_PATH(__xstat)
WEFT_NODE_OLD_PATH(__xstat64)
WEFT_NODE_OLD_PATH(__lxstat)
WEFT_NODE_OLD_PATH(__lxstat64)
WEFT_NODE_OLD_AT(__fxstatat)
WEFT_NODE_OLD_AT(__fxstatat64)
WEFT_NODE_NUMBER(access)
WEFT_NODE_NUMBER(eaccess)
WEFT_NODE_NUMBER(euidaccess)
// Programs that were built with _FORTIFY_SOURCE call these.
WEFT_NODE_OPEN_CHECKED(__open_2)
WEFT_NODE_OPEN_CHECKED(__open64_2)
WEFT_NODE_OPEN(open)
WEFT_NODE_OPEN(open64)
WEFT_NODE_OPEN_AT(openat)
WEFT_NODE_OPEN_AT(openat64)

WEFT_NODE_EXPORT int __openat_2(int, const char*, int);
int __openat_2(int folder, const char* path, int flags) {
  static constinit Next<int(int, const char*, int)> next{"__openat_2"};
  Seen seen(path);
  return seen.opened(next(folder, seen.to_open(), flags));
}

WEFT_NODE_EXPORT int __openat64_2(int, const char*, int);
int __openat64_2(int folder, const char* path, int flags) {
  static constinit Next<int(int, const char*, int)> next{"__openat64_2"};
  Seen seen(path);
  return seen.opened(next(folder, seen.to_open(), flags));
}

WEFT_NODE_EXPORT int faccessat(int, const char*, int, int);
int faccessat(int folder, const char* path, int mode, int flags) {
  static constinit Next<int(int, const char*, int, int)> next{"faccessat"};
  return next(folder, Seen(path).path(), mode, flags);
}

WEFT_NODE_EXPORT int statx(int, const char*, int, unsigned, void*);
int statx(int folder, const char* path, int flags, unsigned mask, void* result) {
  static constinit Next<int(int, const char*, int, unsigned, void*)> next{"statx"};
  return next(folder, Seen(path).path(), flags, mask, result);
}

// --- Folders, and files as streams ---------------------------------------------------------------

// Defines a function for the library's symbol `name`. Headers may declare it with other types.
#define WEFT_NODE_DEFINE(result, name, ...)                        \
  WEFT_NODE_EXPORT result weft_##name(__VA_ARGS__) __asm__(#name); \
  result weft_##name(__VA_ARGS__)

WEFT_NODE_DEFINE(int, chdir, const char* path) {
  static constinit Next<int(const char*)> next{"chdir"};
  return next(Seen(path).path());
}

WEFT_NODE_DEFINE(void*, opendir, const char* path) {
  static constinit Next<void*(const char*)> next{"opendir"};
  return next(Seen(path).path());
}

WEFT_NODE_DEFINE(int, scandir, const char* path, void* entries, void* select, void* compare) {
  static constinit Next<int(const char*, void*, void*, void*)> next{"scandir"};
  return next(Seen(path).path(), entries, select, compare);
}

WEFT_NODE_DEFINE(int, scandir64, const char* path, void* entries, void* select, void* compare) {
  static constinit Next<int(const char*, void*, void*, void*)> next{"scandir64"};
  return next(Seen(path).path(), entries, select, compare);
}

WEFT_NODE_DEFINE(void*, fopen, const char* path, const char* mode) {
  static constinit Next<void*(const char*, const char*)> next{"fopen"};
  return next(Seen(path).to_open(), mode);
}

WEFT_NODE_DEFINE(void*, fopen64, const char* path, const char* mode) {
  static constinit Next<void*(const char*, const char*)> next{"fopen64"};
  return next(Seen(path).to_open(), mode);
}

WEFT_NODE_DEFINE(long, readlink, const char* path, char* target, unsigned long bytes) {
  static constinit Next<long(const char*, char*, unsigned long)> next{"readlink"};
  return next(Seen(path).path(), target, bytes);
}

WEFT_NODE_DEFINE(char*, realpath, const char* path, char* resolved) {
  static constinit Next<char*(const char*, char*)> next{"realpath"};
  return next(Seen(path).path(), resolved);
}
