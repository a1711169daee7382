#include "provider/sysfs_tree.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/write_signals.h"
#include "device/device.h"
#include "device/gid_table.h"
#include "device/sysfs.h"
#include "provider/environment.h"
#include "provider/port_counters.h"

namespace weft::provider {
namespace {

namespace files = std::filesystem;

constexpr const char* system_root = "/sys";
constexpr std::string_view ours = "infiniband";  // the classes that begin with it

// What the tree consists of, by path. A map, so that equal trees are written alike.
using Texts = std::map<std::string, std::string>;

void add_device_file(Texts& texts, device::Device& device, const std::string& path) {
  const auto text = device::sysfs_text(device, path);
  if (text) texts["class/infiniband/weft0/" + path] = *text;
}

Texts texts_of(device::Device& device) {
  Texts texts;
  for (const char* path : {"board_id", "hca_type", "node_type", "node_desc", "node_guid",
                           "sys_image_guid", "fw_ver"}) {
    add_device_file(texts, device, path);
  }
  for (const char* path : {"state", "phys_state", "link_layer", "rate", "lid", "sm_lid", "cap_mask",
                           "lid_mask_count", "sm_sl", "pkeys/0"}) {
    add_device_file(texts, device, std::string("ports/1/") + path);
  }
  for (std::size_t row = 0; row < device::gid_table_size(device); ++row) {
    for (const char* kind : {"gids", "gid_attrs/types", "gid_attrs/ndevs"}) {
      add_device_file(texts, device, fmt::format("ports/1/{}/{}", kind, row));
    }
  }
  for (const std::string_view path : port_counter_paths()) {
    texts[fmt::format("class/infiniband/weft0/ports/1/{}", path)] = "0";
  }
  // As of Linux 6.1: the interfaces of the character devices that weft0 does not have.
  texts["class/infiniband_verbs/abi_version"] = "6";
  texts["class/infiniband_verbs/uverbs0/abi_version"] = "1";
  texts["class/infiniband_verbs/uverbs0/ibdev"] = "weft0";
  texts["class/infiniband_mad/abi_version"] = "5";
  return texts;
}

// The interfaces that the device's addresses belong to.
Texts links_of(const device::Device& device) {
  Texts links;
  for (const auto& local : device.addresses()) {
    links["class/infiniband/weft0/device/net/" + local.interface] =
        "/sys/class/net/" + local.interface;
  }
  return links;
}

// Names that exist already are Weft's and stay. The classes of the machine's own RDMA devices are
// left out, so that programs find only weft0.
void link_what_is_left(const files::path& from, const files::path& to) {
  for (const auto& entry : files::directory_iterator(from)) {
    const std::string name = entry.path().filename();
    if (from.filename() == "class" && name.starts_with(ours)) continue;
    const files::path target = to / name;
    if (!files::exists(files::symlink_status(target))) files::create_symlink(entry.path(), target);
  }
}

void write_tree(const files::path& root, const Texts& texts, const Texts& links) {
  for (const auto& [path, text] : texts) {
    files::create_directories((root / path).parent_path());
    std::ofstream file(root / path);
    file << text << '\n';
    file.close();
    if (!file) throw std::runtime_error((root / path).string() + " cannot be written");
  }
  for (const auto& [path, target] : links) {
    files::create_directories((root / path).parent_path());
    files::create_symlink(target, root / path);
  }
  link_what_is_left(files::path(system_root) / "class", root / "class");
  link_what_is_left(system_root, root);
}

// A folder in a place where others can write counts only if it is this user's own.
bool is_ours(const files::path& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The name contains a hash of the contents, so that of a folder that exists only the counters
// change.
std::string name_of(const Texts& texts, const Texts& links) {
  std::string all;
  for (const auto* part : {&texts, &links}) {
    for (const auto& [path, text] : *part) all += path + '\n' + text + '\n';
  }
  return fmt::format("weft-sysfs-{}-{:016x}", geteuid(), std::hash<std::string>()(all));
}

// The runtime folder of the user is preferred, because others cannot write to it.
files::path place() {
  const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
  if (runtime && is_ours(runtime)) return runtime;
  return "/tmp";
}

// Made under another name first, so that no process finds it half written.
std::string make_tree(device::Device& device) {
  const Texts texts = texts_of(device);
  const Texts links = links_of(device);
  const files::path final_path = place() / name_of(texts, links);
  if (is_ours(final_path)) return final_path;
  std::string made = (place() / "weft-sysfs-XXXXXX").string();
  // The template has six X, which mkdtemp(3) replaces; it makes the folder with mode 0700.
  if (!mkdtemp(made.data())) return system_root;
  try {
    const BlockedWriteSignals blocked;
    write_tree(made, texts, links);
  } catch (const std::exception&) {  // the disk is full, for example
    std::error_code ignored;
    files::remove_all(made, ignored);
    throw;
  }
  // Another process may have been faster; if something else is there, this one is kept.
  if (rename(made.c_str(), final_path.c_str()) == 0) return final_path;
  if (!is_ours(final_path)) return made;
  files::remove_all(made);
  return final_path;
}

std::string find_or_make() {
  try {
    device::Settings settings;
    // The same error is reported when the program opens the device.
    if (!read_environment(settings).empty()) return system_root;
    // The device is made for its attributes only: it must not open the files of the program's own
    // device.
    settings.capture_path.clear();
    settings.stats_path.clear();
    settings.trace_path.clear();
    auto device = device::Device::create(settings);
    return device ? make_tree(**device) : system_root;
  } catch (const std::exception&) {  // no room, or no rights
    return system_root;
  }
}

}  // namespace

std::string sysfs_folder_of(device::Device& device) {
  return place() / name_of(texts_of(device), links_of(device));
}

bool sysfs_folder_exists(const std::string& folder) {
  return is_ours(folder);
}

const std::string& sysfs_folder() {
  static const auto* folder = new std::string(find_or_make());  // never destroyed
  return *folder;
}

}  // namespace weft::provider
