// libweft-node.so, which `weft run` loads into programs. The device has no node below
// /dev/infiniband, but some programs look for it before they use a device (UCX: stat(2) must find a
// character device, access(2) must grant reading and writing). For exactly this path, the functions
// of the C library that look at files or open them answer as for /dev/null. Everything else is
// passed on unchanged.
//
// It links no other library of Weft, so that programs without RDMA are not slowed down. The names
// are declared here and not by headers of the C library, which define some of them as macros or
// inline functions, depending on its version.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <string_view>

#define WEFT_NODE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::string_view node = "/dev/infiniband/uverbs0";

const char* seen(const char* path) {
  return path && path == node ? "/dev/null" : path;
}

// The function that the next library has; null where its version of the C library has none.
template <typename Signature>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}

  template <typename... Arguments>
  int operator()(Arguments... arguments) {
    auto* found = found_.load(std::memory_order_relaxed);
    if (!found) {
      found = reinterpret_cast<Signature*>(dlsym(RTLD_NEXT, name_));
      found_.store(found, std::memory_order_relaxed);
    }
    if (found) return found(arguments...);
    errno = ENOSYS;
    return -1;
  }

 private:
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
    return next(seen(path), result);                            \
  }
#define WEFT_NODE_OLD_PATH(name)                                     \
  WEFT_NODE_EXPORT int name(int, const char*, void*);                \
  int name(int version, const char* path, void* result) {            \
    static constinit Next<int(int, const char*, void*)> next{#name}; \
    return next(version, seen(path), result);                        \
  }
#define WEFT_NODE_AT(name)                                                \
  WEFT_NODE_EXPORT int name(int, const char*, void*, int);                \
  int name(int folder, const char* path, void* result, int flags) {       \
    static constinit Next<int(int, const char*, void*, int)> next{#name}; \
    return next(folder, seen(path), result, flags);                       \
  }
#define WEFT_NODE_OLD_AT(name)                                                   \
  WEFT_NODE_EXPORT int name(int, int, const char*, void*, int);                  \
  int name(int version, int folder, const char* path, void* result, int flags) { \
    static constinit Next<int(int, int, const char*, void*, int)> next{#name};   \
    return next(version, folder, seen(path), result, flags);                     \
  }
// access(2) and its relatives, and open(2) without a mode.
#define WEFT_NODE_NUMBER(name)                                \
  WEFT_NODE_EXPORT int name(const char*, int);                \
  int name(const char* path, int number) {                    \
    static constinit Next<int(const char*, int)> next{#name}; \
    return next(seen(path), number);                          \
  }
#define WEFT_NODE_OPEN(name)                                       \
  WEFT_NODE_EXPORT int name(const char*, int, ...);                \
  int name(const char* path, int flags, ...) {                     \
    static constinit Next<int(const char*, int, ...)> next{#name}; \
    if (!has_mode(flags)) return next(seen(path), flags);          \
    va_list more;                                                  \
    va_start(more, flags);                                         \
    const unsigned mode = va_arg(more, unsigned);                  \
    va_end(more);                                                  \
    return next(seen(path), flags, mode);                          \
  }
#define WEFT_NODE_OPEN_AT(name)                                         \
  WEFT_NODE_EXPORT int name(int, const char*, int, ...);                \
  int name(int folder, const char* path, int flags, ...) {              \
    static constinit Next<int(int, const char*, int, ...)> next{#name}; \
    if (!has_mode(flags)) return next(folder, seen(path), flags);       \
    va_list more;                                                       \
    va_start(more, flags);                                              \
    const unsigned mode = va_arg(more, unsigned);                       \
    va_end(more);                                                       \
    return next(folder, seen(path), flags, mode);                       \
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
WEFT_NODE_NUMBER(__open_2)
WEFT_NODE_NUMBER(__open64_2)
WEFT_NODE_OPEN(open)
WEFT_NODE_OPEN(open64)
WEFT_NODE_OPEN_AT(openat)
WEFT_NODE_OPEN_AT(openat64)

WEFT_NODE_EXPORT int __openat_2(int, const char*, int);
int __openat_2(int folder, const char* path, int flags) {
  static constinit Next<int(int, const char*, int)> next{"__openat_2"};
  return next(folder, seen(path), flags);
}

WEFT_NODE_EXPORT int __openat64_2(int, const char*, int);
int __openat64_2(int folder, const char* path, int flags) {
  static constinit Next<int(int, const char*, int)> next{"__openat64_2"};
  return next(folder, seen(path), flags);
}

WEFT_NODE_EXPORT int faccessat(int, const char*, int, int);
int faccessat(int folder, const char* path, int mode, int flags) {
  static constinit Next<int(int, const char*, int, int)> next{"faccessat"};
  return next(folder, seen(path), mode, flags);
}

WEFT_NODE_EXPORT int statx(int, const char*, int, unsigned, void*);
int statx(int folder, const char* path, int flags, unsigned mask, void* result) {
  static constinit Next<int(int, const char*, int, unsigned, void*)> next{"statx"};
  return next(folder, seen(path), flags, mask, result);
}
