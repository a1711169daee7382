// Replacements of exec(3) and posix_spawn(3), for programs that inherit a listening socket.
//
// A program may execute another one with an environment that does not load this library: Dovecot
// does so for all its servers. Most such programs do not need the library. A program that inherits
// a listening socket needs it, because clients of this host send it the requests of streams.
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/data.h"
#include "interpose/descriptor.h"
#include "interpose/export.h"
#include "interpose/next.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

using Environment = char* const*;  // ends with a null pointer

constexpr std::string_view this_library = "libweft-sockets.so";
constexpr std::string_view preloads = "LD_PRELOAD=";
constexpr std::string_view loaded_from = "LD_LIBRARY_PATH=";

bool is_list(std::string_view entry) {
  return entry.starts_with(preloads) || entry.starts_with(loaded_from);
}

// What `weft run` has set for this process, as it was at its start. Never destroyed.
const std::vector<std::string>& own_entries() {
  static const auto* const entries = [] {
    auto* const made = new std::vector<std::string>();
    for (Environment entry = environ; entry && *entry; ++entry) {
      const std::string_view text = *entry;
      if (is_list(text) || text.starts_with("WEFT_")) made->emplace_back(text);
    }
    return made;
  }();
  return *entries;
}

[[gnu::constructor]] void note_own_entries() {
  (void)own_entries();
}

std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('=') + 1);
}

const char* find_entry(Environment environment, std::string_view name) {
  for (; environment && *environment; ++environment) {
    if (std::string_view(*environment).starts_with(name)) return *environment;
  }
  return nullptr;
}

bool loads_this_library(Environment environment) {
  const char* const entry = find_entry(environment, preloads);
  return entry && std::string_view(entry).find(this_library) != std::string_view::npos;
}

int option_of(int fd, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return next::getsockopt(fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : 0;
}

bool is_inherited_listener(int fd) {
  return option_of(fd, SO_ACCEPTCONN) != 0 && option_of(fd, SO_PROTOCOL) == IPPROTO_TCP &&
         (next::fcntl(fd, F_GETFD, nullptr) & FD_CLOEXEC) == 0;
}

bool passes_listener() {
  DIR* const list = opendir("/proc/self/fd");
  if (!list) return false;
  bool found = false;
  while (const dirent* entry = found ? nullptr : readdir(list)) {
    found = is_inherited_listener(std::atoi(entry->d_name));  // 0 for "." and ".."
  }
  closedir(list);
  return found;
}

// An environment with the entries of this process. Of lists that both have, those of this process
// come first; other variables keep the value that they have been given.
class WithLibrary {
 public:
  explicit WithLibrary(Environment given) {
    for (const std::string& own : own_entries()) {
      const std::string_view name = name_of(own);
      const char* const other = find_entry(given, name);
      if (other && is_list(own)) {
        made_.push_back(own + ":" + std::string(std::string_view(other).substr(name.size())));
      } else if (!other) {
        made_.push_back(own);
      }
    }
    for (; given && *given; ++given) {
      if (!is_list(*given) || !is_made(name_of(*given))) entries_.push_back(*given);
    }
    for (std::string& entry : made_) entries_.push_back(entry.data());
    entries_.push_back(nullptr);
  }

  [[nodiscard]] Environment get() const { return entries_.data(); }

 private:
  [[nodiscard]] bool is_made(std::string_view name) const {
    return std::ranges::any_of(
        made_, [=](const std::string& entry) { return std::string_view(entry).starts_with(name); });
  }

  std::vector<std::string> made_;
  std::vector<char*> entries_;
};

// Those that stay open become the kernel's, if they have no connection.
void pass_sockets() {
  const bool own = owns_table();
  if (own) {
    lock_table();
  } else if (!lock_table_of_parent()) {
    return;
  }
  const auto entries = all_entries();
  own ? unlock_table() : unlock_table_of_parent();
  for (const auto& [fd, socket] : entries) {
    const int flags = next::fcntl(fd, F_GETFD, nullptr);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) (void)socket->pass_to_program(fd);
  }
}

// Calls `execute` with the environment that the program is to have. The other program gets the
// thread's mask of signals, which is the program's own while this thread is Waiting.
template <typename Execute>
int with_environment(Environment given, Execute execute) {
  (void)guarded([] {
    pass_sockets();
    return 0;
  });
  if (own_entries().empty() || loads_this_library(given) || !passes_listener()) {
    return execute(given);
  }
  return guarded([&] { return execute(WithLibrary(given).get()); });
}

// --- posix_spawn(3) ------------------------------------------------------------------------------

// The file actions may duplicate any connection for the other program.
void relay_all() {
  lock_table();
  const auto sockets = all_sockets();
  unlock_table();
  for (const auto& socket : sockets) {
    (void)guarded([&] { return socket->start_relay() ? 1 : 0; });
  }
}

// While posix_spawn(3) makes the other process, kernel sockets are in the places of sockets that
// have no connection, and the table is locked: no other thread closes one of them, or forks.
class LentSockets {
 public:
  // `all`: also those that are closed on exec, which file actions may duplicate.
  explicit LentSockets(bool all) : owns_(owns_table()) {
    if (!owns_) return;
    lock_table();
    (void)guarded([&] {
      entries_ = all_entries();
      for (const auto& [fd, socket] : entries_) lend(fd, *socket, all);
      return 0;
    });
  }
  ~LentSockets() {
    if (!owns_) return;
    for (const auto& [fd, file, flags] : replaced_) {
      next::dup3(file.get(), fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
    }
    unlock_table();
  }
  LentSockets(const LentSockets&) = delete;
  LentSockets& operator=(const LentSockets&) = delete;

 private:
  struct Replaced {
    int fd;
    Descriptor file;
    int flags;
  };

  void lend(int fd, Socket& socket, bool all) {
    const int flags = next::fcntl(fd, F_GETFD, nullptr);
    if (flags < 0 || ((flags & FD_CLOEXEC) != 0 && !all)) return;
    Descriptor file = copy_high(fd);
    if (socket.lend_to_program(fd)) replaced_.push_back({fd, std::move(file), flags});
  }

  const bool owns_;
  std::vector<std::pair<int, std::shared_ptr<Socket>>> entries_;
  std::vector<Replaced> replaced_;
};

// Calls `make` with the environment that the other program is to have. Returns an errno value.
template <typename Make>
int spawn(const posix_spawn_file_actions_t* actions, Environment given, Make make) {
  if (actions) relay_all();
  const LentSockets lent(actions != nullptr);
  if (own_entries().empty() || loads_this_library(given) || !passes_listener()) return make(given);
  int result = ENOMEM;
  (void)guarded([&] { return result = make(WithLibrary(given).get()); });
  return result;
}

// The arguments of a function such as execl(3), up to the null pointer.
std::vector<char*> collect(const char* first, va_list& others) {
  std::vector<char*> arguments;
  for (const char* each = first; each; each = va_arg(others, const char*)) {
    arguments.push_back(const_cast<char*>(each));
  }
  arguments.push_back(nullptr);
  return arguments;
}

}  // namespace

WEFT_INTERPOSED int execve(const char* path, char* const arguments[], char* const environment[]) {
  return with_environment(environment, [&](Environment used) {
    const Waiting handlers_run;
    return next::execve(path, arguments, used);
  });
}

WEFT_INTERPOSED int execv(const char* path, char* const arguments[]) {
  return execve(path, arguments, environ);
}

WEFT_INTERPOSED int execvpe(const char* file, char* const arguments[], char* const environment[]) {
  return with_environment(environment, [&](Environment used) {
    const Waiting handlers_run;
    return next::execvpe(file, arguments, used);
  });
}

WEFT_INTERPOSED int execvp(const char* file, char* const arguments[]) {
  return execvpe(file, arguments, environ);
}

WEFT_INTERPOSED int fexecve(int fd, char* const arguments[], char* const environment[]) {
  return with_environment(environment, [&](Environment used) {
    const Waiting handlers_run;
    return next::fexecve(fd, arguments, used);
  });
}

WEFT_INTERPOSED int execl(const char* path, const char* first, ...) {
  va_list others;
  va_start(others, first);
  const int failed = guarded([&] { return execve(path, collect(first, others).data(), environ); });
  va_end(others);
  return failed;
}

WEFT_INTERPOSED int execlp(const char* file, const char* first, ...) {
  va_list others;
  va_start(others, first);
  const int failed = guarded([&] { return execvpe(file, collect(first, others).data(), environ); });
  va_end(others);
  return failed;
}

// The environment follows the null pointer that ends the arguments.
WEFT_INTERPOSED int execle(const char* path, const char* first, ...) {
  va_list others;
  va_start(others, first);
  const int failed = guarded([&] {
    const std::vector<char*> arguments = collect(first, others);
    return execve(path, arguments.data(), va_arg(others, char* const*));
  });
  va_end(others);
  return failed;
}

WEFT_INTERPOSED int posix_spawn(pid_t* child, const char* path,
                                const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const arguments[],
                                char* const environment[]) {
  return spawn(actions, environment, [&](Environment used) {
    const Waiting handlers_run;
    return next::posix_spawn(child, path, actions, attributes, arguments, used);
  });
}

WEFT_INTERPOSED int posix_spawnp(pid_t* child, const char* file,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const arguments[],
                                 char* const environment[]) {
  return spawn(actions, environment, [&](Environment used) {
    const Waiting handlers_run;
    return next::posix_spawnp(child, file, actions, attributes, arguments, used);
  });
}
