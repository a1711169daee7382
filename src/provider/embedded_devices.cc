// Devices and contexts, and queries of their attributes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "device/limits.h"
#include "device/query.h"
#include "device/queue_pair/queue_pair.h"
#include "device/sysfs.h"
#include "provider/embedded.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"
#include "provider/sysfs_tree.h"

namespace weft::provider {
namespace {

using device::Context;
using device::Device;

// The size of ibv_port_attr in old programs, which call ibv_query_port() as a function.
constexpr std::size_t compatible_port_bytes = offsetof(ibv_port_attr, port_cap_flags2);

// The values that libibverbs has for the files of sysfs. They differ from those of ibv_gid_type.
constexpr int gid_type_roce_v1 = 0;
constexpr int gid_type_roce_v2 = 1;

// The list always has the one device, unless it cannot be made.
// The array is new in each call, since each one is freed by ibv_free_device_list(3).
ibv_device** get_device_list(int* count) {
  if (count) *count = 0;
  Device* device = Process::current().device();
  if (!device) return nullptr;
  auto** list = new ibv_device* [2] { device->verbs(), nullptr };
  if (count) *count = 1;
  return list;
}

void free_device_list(ibv_device** list) {
  delete[] list;
}

const char* get_device_name(ibv_device* device) {
  return device->name;
}

int get_device_index(ibv_device* /*device*/) {
  return 0;
}

std::uint64_t get_device_guid(ibv_device* device) {
  return Device::of(device)->guid_be();
}

ibv_context* open_device(ibv_device* device) {
  Device* ours = Process::current().device();
  if (!ours) return nullptr;
  // A pointer from before fork(2) stands for the device that replaced it, so compare the names.
  if (device != ours->verbs() && std::string_view(device->name) != ours->verbs()->name) {
    return fail_null(ENODEV);
  }
  if (const int failed = ours->fault_of(faults::Point::open_device)) return fail_null(failed);
  return make_context(*ours).release()->verbs();
}

// A child of fork(2) may close contexts of its parent, which has no effect.
int close_device(ibv_context* verbs) {
  Context* context = Context::of(verbs);
  if (!Process::owns(verbs) || Process::current().is_shared(context)) return 0;
  if (!context->sharing().close()) return 0;
  context->leave_events();
  // The peers learn of the end here, as if the program had destroyed the queue pairs.
  for (const auto& queue_pair : context->queue_pairs()) queue_pair->destroy();
  Device& device = context->device();
  if (!Process::current().other_devices().close_manager(device)) return 0;
  // Objects that the program did not destroy refer to the context, so it must stay.
  if (context->objects != 0) return 0;
  delete context;
  Process::current().other_devices().close(device);
  return 0;
}

int configure(const DeviceOptions& options, std::string& why) {
  return Process::current().configure(options, why);
}

ibv_context* open_configured(const DeviceOptions& options, std::string& why) {
  Context* const opened = Process::current().open_configured(options, why);
  return opened ? opened->verbs() : nullptr;
}

void explain_no_device(std::string& why) {
  why = Process::current().why_no_device();
}

// Counters are those of all processes of the user, and are in files.
bool is_of_counter(std::string_view path) {
  return path.find("/counters/") != path.npos || path.find("/hw_counters/") != path.npos;
}

// Answers for weft0 from the device, because it has no files in sysfs.
int read_sysfs_file(const char* directory, const char* file, char* text, std::size_t bytes) {
  constexpr std::string_view system_root = "/sys";
  constexpr std::string_view ours = "/sys/class/infiniband/weft0";
  std::string path = std::string(directory) + "/" + file;
  std::string content;
  const bool is_ours = path.starts_with(std::string(ours) + "/");
  if (is_ours && is_of_counter(path)) {
    Process::publish_counters();
    path.replace(0, system_root.size(), sysfs_folder());
  }
  if (!is_ours || is_of_counter(path)) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(std::fopen(path.c_str(), "re"),
                                                                 &std::fclose);
    if (!opened) return -1;
    content.resize(bytes);
    content.resize(std::fread(content.data(), 1, bytes, opened.get()));
    // As libibverbs does it: the text is returned without its line end.
    if (content.ends_with('\n')) content.pop_back();
  } else {
    Device* device = Process::current().device();
    const auto known =
        device ? device::sysfs_text(*device, path.substr(ours.size() + 1)) : std::nullopt;
    if (!known) {
      errno = ENOENT;
      return -1;
    }
    content = *known;
  }
  content.resize(std::min(content.size(), bytes));
  std::copy(content.begin(), content.end(), text);
  // A text that fills the buffer has no terminating zero, and the program uses its length.
  if (content.size() < bytes) text[content.size()] = '\0';
  return static_cast<int>(content.size());
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
  device::query_device(*Context::of(context), *attributes);
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  return device::query_port(*Context::of(context), port,
                            reinterpret_cast<ibv_port_attr*>(attributes), compatible_port_bytes);
}

int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  if (device::query_gid(*Context::of(context), port, index, *gid) == 0) return 0;
  errno = EINVAL;
  return -1;
}

// Copies only as many bytes as the caller's version of ibv_gid_entry has.
int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                 ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_bytes) {
  if (flags != 0) return EOPNOTSUPP;
  ibv_gid_entry ours{};
  if (const int failed = device::query_gid_entry(*Context::of(context), port, index, ours)) {
    return failed;
  }
  // A newer caller may have fields that this version does not know: they are zero.
  std::memset(static_cast<void*>(entry), 0, entry_bytes);
  std::memcpy(static_cast<void*>(entry), &ours, std::min(entry_bytes, sizeof ours));
  return 0;
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                        std::uint32_t flags, std::size_t entry_bytes) {
  // No flags are defined yet; ibv_query_gid_table(3) returns errors as negative numbers.
  if (flags != 0) return -EOPNOTSUPP;
  const std::size_t count = device::gid_count(*Context::of(context));
  if (count > max_entries) return -EINVAL;
  auto* at = reinterpret_cast<std::byte*>(entries);
  for (std::uint32_t index = 0; index < count; ++index, at += entry_bytes) {
    const int failed =
        query_gid_ex(context, 1, index, reinterpret_cast<ibv_gid_entry*>(at), 0, entry_bytes);
    if (failed != 0) return -failed;
  }
  return static_cast<ssize_t>(count);
}

int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  ibv_gid_entry entry{};
  if (device::query_gid_entry(*Context::of(context), port, index, entry) != 0) {
    errno = EINVAL;
    return -1;
  }
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? gid_type_roce_v2 : gid_type_roce_v1;
  return 0;
}

int query_pkey(ibv_context* /*context*/, std::uint8_t port, int index, std::uint16_t* pkey_be) {
  if (device::query_pkey(port, index, *pkey_be) == 0) return 0;
  errno = EINVAL;
  return -1;
}

// The query fails behind the last key, which ends the search.
int get_pkey_index(ibv_context* context, std::uint8_t port, std::uint16_t pkey_be) {
  std::uint16_t known = 0;
  for (int index = 0; query_pkey(context, port, index, &known) == 0; ++index) {
    if (known == pkey_be) return index;
  }
  return -1;
}

// Memory is not pinned, so copy-on-write after fork(2) does no harm.
int fork_init() {
  return 0;
}
ibv_fork_status is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

}  // namespace

std::unique_ptr<Context> make_context(Device& device) {
  auto made = std::make_unique<Context>(device);
  ibv_context& verbs = *made->verbs();
  // A simulation has no second process, and some programs check that the descriptor is valid.
  if (!device.engine().simulated()) made->sharing().begin_file();
  const int file = made->sharing().file().descriptor();
  verbs.cmd_fd = file >= 0 ? file : verbs.async_fd;
  verbs.ops._compat_query_device = embedded().query_device;
  verbs.ops._compat_query_port = embedded().query_port;
  return made;
}

void parts::devices(Table& table) {
  table.get_device_list = verbs_call<get_device_list>;
  table.free_device_list = verbs_call<free_device_list>;
  table.get_device_name = verbs_call<get_device_name>;
  table.get_device_index = verbs_call<get_device_index>;
  table.get_device_guid = verbs_call<get_device_guid>;
  table.open_device = verbs_call<open_device>;
  table.close_device = verbs_call<close_device>;
  table.read_sysfs_file = cm_call<read_sysfs_file>;
  table.query_device = verbs_call<query_device>;
  table.query_port = verbs_call<query_port>;
  table.query_gid = cm_call<query_gid>;
  table.query_gid_ex = verbs_call<query_gid_ex>;
  table.query_gid_table = verbs_call<query_gid_table>;
  table.query_gid_type = cm_call<query_gid_type>;
  table.query_pkey = cm_call<query_pkey>;
  table.get_pkey_index = cm_call<get_pkey_index>;
  table.configure = verbs_call<configure>;
  table.open_configured = verbs_call<open_configured>;
  table.explain_no_device = verbs_call<explain_no_device>;
  table.set_log = verbs_call<set_log_function>;
  table.fork_init = verbs_call<fork_init>;
  table.is_fork_initialized = verbs_call<is_fork_initialized>;
}

}  // namespace weft::provider
