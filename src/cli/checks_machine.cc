// Checks of adapters, libraries, addresses, limits and variables.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <link.h>
#include <net/if.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

#include "cli/checks.h"
#include "provider/environment.h"

namespace weft::cli {
namespace {

namespace files = std::filesystem;

constexpr int highest_priority = -20;  // a nice value

// A folder that does not exist is empty. Sorted, because the order of a directory is arbitrary.
std::vector<std::string> names_in(const char* folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : files::directory_iterator(folder, failed)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// An adapter without a device below it is a software one (rxe, siw).
std::string driver_of(const std::string& adapter) {
  std::error_code failed;
  const auto link =
      files::read_symlink("/sys/class/infiniband/" + adapter + "/device/driver", failed);
  return failed ? "software" : link.filename().string();
}

// Only asks for the permission: opening the file would call the driver of the adapter.
bool can_open_adapters() {
  for (const std::string& name : names_in("/dev/infiniband")) {
    if (name.starts_with("uverbs") && access(("/dev/infiniband/" + name).c_str(), R_OK | W_OK) == 0)
      return true;
  }
  return false;
}

// The file of a library that the loader finds, after following symbolic links. Empty if there is
// none.
std::string file_of_library(const char* name) {
  void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return {};
  const link_map* map = nullptr;
  std::string path;
  // Copied before dlclose(3), which may free the text.
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) path = map->l_name;
  dlclose(handle);
  std::error_code failed;
  const files::path real = files::canonical(path, failed);
  return failed ? path : real.string();
}

// rdma-core has its version at the end of the name: libibverbs.so.1.14.44.0 is version 44.0.
std::string rdma_core_version(const std::string& file) {
  const std::size_t last = file.rfind('.');
  const std::size_t before = file.rfind('.', last - 1);
  // A name without two dots has no version.
  if (last == std::string::npos || before == std::string::npos) return {};
  return file.substr(before + 1);
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : fmt::format("{}", value);
}

struct Addresses {
  std::vector<std::string> others;
  std::vector<std::string> loopback;
  int error = 0;  // an errno value: they are not known
};

// The addresses of interfaces that are up.
Addresses addresses() {
  Addresses found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    found.error = errno;
    return found;
  }
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    // An interface without an address, such as some tunnels, has a null pointer (getifaddrs(3)).
    if (!entry->ifa_addr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const void* bytes =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(family, bytes, text.data(), text.size());
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    (loopback ? found.loopback : found.others)
        .push_back(fmt::format("{} ({})", text.data(), entry->ifa_name));
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

void check_adapters(Findings& findings) {
  std::string list;
  for (const std::string& name : names_in("/sys/class/infiniband")) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", name, driver_of(name));
  }
  if (list.empty()) {
    findings.push_back({"adapters", Health::good,
                        "This machine has no RDMA adapter. Programs under `weft run` need none.",
                        ""});
    return;
  }
  if (can_open_adapters()) {
    findings.push_back(
        {"adapters", Health::good,
         fmt::format("RDMA adapters: {}. Programs under `weft run` do not see them.", list), ""});
    return;
  }
  findings.push_back({"adapters", Health::note,
                      fmt::format("RDMA adapters: {}; but this user may open none of them.", list),
                      "To use an adapter, get read and write access to /dev/infiniband/uverbs*. "
                      "`weft run` does not need it."});
}

void check_rdma_core(const std::string& folder, Findings& findings) {
  // The loader has read LD_LIBRARY_PATH when this program started, so that prepend_library_path()
  // does not change what is found here.
  constexpr const char* library = "libibverbs.so.1";
  const std::string file = file_of_library(library);
  if (file.empty()) {
    findings.push_back({"rdma-core", Health::good,
                        "rdma-core is not installed. Programs under `weft run` use Weft's own "
                        "libibverbs.so.1 and librdmacm.so.1.",
                        ""});
    return;
  }
  std::error_code failed;
  if (!folder.empty() && files::equivalent(file, files::path(folder) / library, failed)) {
    findings.push_back(
        {"rdma-core", Health::good,
         "This command runs under `weft run`, or with its LD_LIBRARY_PATH, and finds "
         "Weft's own libibverbs.so.1: whether rdma-core is installed is not seen.",
         ""});
    return;
  }
  findings.push_back({"rdma-core", Health::good,
                      fmt::format("rdma-core {} is installed ({}).", rdma_core_version(file), file),
                      ""});
}

void check_addresses(Findings& findings) {
  const Addresses found = addresses();
  if (found.error != 0) {
    findings.push_back({"addresses", Health::problem,
                        fmt::format("The addresses of this host cannot be listed: getifaddrs: {}.",
                                    std::strerror(found.error)),
                        "In a container, allow sockets of netlink (AF_NETLINK, NETLINK_ROUTE)."});
    return;
  }
  // A loopback address is enough for two programs of one host, and the self-test needs one.
  if (found.loopback.empty()) {
    findings.push_back({"addresses", Health::problem,
                        "The loopback interface is down: even two programs on this machine cannot "
                        "connect.",
                        "As root of this network namespace: ip link set lo up"});
  }
  if (found.others.empty()) {
    findings.push_back({"addresses", Health::note,
                        "There are only loopback addresses: only programs on this machine can "
                        "connect to each other.",
                        ""});
    return;
  }
  findings.push_back(
      {"addresses", Health::good,
       fmt::format("Addresses that other machines may reach: {}.", fmt::join(found.others, ", ")),
       ""});
}

void check_limits(Findings& findings) {
  rlimit files_limit{};
  getrlimit(RLIMIT_NOFILE, &files_limit);
  // Enough for a program with some thousand connections, and its own files.
  constexpr rlim_t comfortable = 4096;
  // The hard limit counts, because `weft run` raises the soft one to it.
  const bool tight = files_limit.rlim_max < comfortable;
  findings.push_back(
      {"descriptors", tight ? Health::note : Health::good,
       fmt::format("A process may open {} files ({} by default); each connection needs one, "
                   "and `weft run` raises the limit to the maximum.",
                   limit_text(files_limit.rlim_max), limit_text(files_limit.rlim_cur)),
       tight ? "For more connections raise the hard limit: LimitNOFILE= of the service, "
               "--ulimit nofile= of the container, or /etc/security/limits.conf."
             : ""});
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  findings.push_back(
      {"locked memory", Health::good,
       fmt::format("A process may lock {} bytes. An adapter locks all registered memory; the "
                   "embedded device locks none.",
                   limit_text(locked.rlim_cur)),
       ""});
}

// A thread of its own tries it, since its nice value may not be taken back.
void check_priority(Findings& findings) {
  int refused = 0;
  std::thread([&refused] {
    if (setpriority(PRIO_PROCESS, 0, highest_priority) != 0) refused = errno;
  }).join();
  if (refused == 0) {
    findings.push_back(
        {"priority", Health::good,
         "The device's thread may have any priority. With WEFT_PRIORITY=-20 programs that watch "
         "memory see what is written over TCP in time, also while all processors are busy.",
         ""});
    return;
  }
  findings.push_back(
      {"priority", Health::good,
       fmt::format(
           "The device's thread may not have the priority {} ({}). While all processors are "
           "busy, programs that watch memory may see what is written over TCP some "
           "milliseconds late. WEFT_PRIORITY={} helps where it is permitted, by "
           "CAP_SYS_NICE or RLIMIT_NICE (LimitNICE={} of a service).",
           highest_priority, strerror(refused), highest_priority, highest_priority),
       ""});
}

void check_environment(Findings& findings) {
  // An empty variable is like one that is not set, as the device has it.
  for (const provider::Variable& variable : provider::variables()) {
    const char* value = std::getenv(std::string(variable.name).c_str());
    if (!value || !*value) continue;
    const std::string wrong = provider::check_variable(variable.name, value);
    if (wrong.empty()) {
      findings.push_back(
          {"environment", Health::note, fmt::format("{}={}", variable.name, value), ""});
    } else {
      findings.push_back({"environment", Health::problem, wrong,
                          fmt::format("Unset {}, or set it to a valid value.", variable.name)});
    }
  }
}

}  // namespace weft::cli
