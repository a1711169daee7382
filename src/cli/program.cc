#include "cli/program.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::vector<std::string> candidates(const std::string& name) {
  // As in execvp(3): a name with a slash is not searched for.
  if (name.find('/') != std::string::npos) return {name};
  const char* variable = std::getenv("PATH");
  const std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  std::vector<std::string> found;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find(':', from), path.size());
    const std::string folder = path.substr(from, to - from);
    // An empty entry is the current directory.
    found.push_back((folder.empty() ? "." : folder) + "/" + name);
    from = to + 1;
  }
  return found;
}

// The loader ignores LD_LIBRARY_PATH for such programs (ld.so(8), secure-execution mode).
bool gains_privileges(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return false;
  // A set-user-ID program that belongs to the caller gains nothing by it.
  if ((info.st_mode & S_ISUID) != 0 && info.st_uid != geteuid()) return true;
  if ((info.st_mode & S_ISGID) != 0 && info.st_gid != getegid()) return true;
  // File capabilities change nothing for root. The size 0 only asks whether the attribute exists.
  return geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

struct Kind {
  enum class Linked { dynamically, statically, foreign_word_size, no_elf };
  Linked linked = Linked::no_elf;
  bool go = false;  // made by the Go compiler
};

// Only programs of the same word size can load the libraries.
constexpr int own_bits = 8 * sizeof(void*);
constexpr unsigned char own_class = own_bits == 64 ? ELFCLASS64 : ELFCLASS32;

// Go's linker names its programs in a note of this owner and type, which holds the build ID. Walks
// over the notes of a segment: each has a header, its owner and its content, at multiples of four.
bool has_go_note(std::ifstream& file, const ElfW(Phdr) & segment) {
  constexpr std::string_view owner("Go\0", 4);
  constexpr ElfW(Word) go_build_id = 4;
  constexpr auto padded = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
  std::string notes(std::min<std::size_t>(segment.p_filesz, 4096), 0);
  file.seekg(static_cast<std::streamoff>(segment.p_offset));
  if (!file.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return false;
  for (std::string_view rest = notes; rest.size() > sizeof(ElfW(Nhdr));) {
    ElfW(Nhdr) header;
    std::memcpy(&header, rest.data(), sizeof header);
    rest.remove_prefix(sizeof header);
    if (header.n_type == go_build_id && rest.substr(0, header.n_namesz) == owner) return true;
    rest.remove_prefix(std::min(rest.size(), padded(header.n_namesz) + padded(header.n_descsz)));
  }
  return false;
}

// Reads the ELF headers. A program without an interpreter is not linked dynamically.
Kind kind_of(const std::string& path) {
  using Linked = Kind::Linked;
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return {};
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  // Before the other members, which are at other places in a header of the other class.
  if (header.e_ident[EI_CLASS] != own_class) return {Linked::foreign_word_size};
  Kind kind{Linked::statically};
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    // The size of an entry is that of the file, which may be larger than the structure (gABI).
    file.seekg(static_cast<std::streamoff>(header.e_phoff) + i * header.e_phentsize);
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return {};
    if (segment.p_type == PT_INTERP) kind.linked = Linked::dynamically;
    if (segment.p_type == PT_NOTE && has_go_note(file, segment)) kind.go = true;
    file.clear();  // the notes may have been cut
  }
  return kind;
}

// This is no error, because the program may start others, which do see the device.
std::string warning_for(const std::string& path, const Kind& kind) {
  if (gains_privileges(path)) {
    return fmt::format(
        "{} runs with more privileges than its caller, so the loader ignores the library path: it "
        "will not see weft0; run a copy without those privileges",
        path);
  }
  // A script has no ELF header: its interpreter loads the libraries, which is not checked.
  switch (kind.linked) {
    case Kind::Linked::statically:
      return fmt::format(
          "{} is linked statically: it contains its own libibverbs, if any, and will "
          "not see weft0",
          path);
    case Kind::Linked::foreign_word_size:
      return fmt::format(
          "{} is not a {}-bit program: it cannot load Weft's libraries and will not "
          "see weft0",
          path, own_bits);
    default:
      return {};
  }
}

// The library for sockets is called in place of the C library's functions, and only by programs
// that load it.
std::string sockets_warning_for(const std::string& path, const Kind& kind) {
  if (kind.go) {
    return fmt::format(
        "{} is a Go program, which calls the kernel without the C library: its sockets stay the "
        "kernel's TCP",
        path);
  }
  const bool loads_nothing =
      kind.linked == Kind::Linked::statically || kind.linked == Kind::Linked::foreign_word_size;
  if (!loads_nothing && !gains_privileges(path)) return {};
  return fmt::format("{} cannot load the library for sockets: they stay the kernel's TCP", path);
}

Program checked_program(const std::string& path) {
  const Kind kind = kind_of(path);
  return {.path = path,
          .exit_status = 0,
          .problem = {},
          .warning = warning_for(path, kind),
          .sockets_warning = sockets_warning_for(path, kind)};
}

}  // namespace

// A file that is not executable is remembered, but a later folder of PATH may have an executable
// one.
Program find_program(const std::string& name) {
  std::string refused;
  for (const std::string& path : candidates(name)) {
    if (!is_file(path)) {
      // A folder or a device exists, but it cannot be executed: status 126 and not 127.
      if (name.find('/') != std::string::npos && access(path.c_str(), F_OK) == 0) refused = path;
      continue;
    }
    if (access(path.c_str(), X_OK) == 0) return checked_program(path);
    if (refused.empty()) refused = path;
  }
  if (!refused.empty()) {
    return {.path = {},
            .exit_status = 126,
            .problem = fmt::format("{} is not an executable file", refused),
            .warning = {},
            .sockets_warning = {}};
  }
  const char* where = name.find('/') == std::string::npos ? " on the PATH" : "";
  return {.path = {},
          .exit_status = 127,
          .problem = fmt::format("there is no program {}{}", name, where),
          .warning = {},
          .sockets_warning = {}};
}

}  // namespace weft::cli
