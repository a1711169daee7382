// Captures that a program starts and stops by calls: weft/verbs/capture.hpp.
#include <algorithm>

#include "device/context.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::CaptureFile;
using device::DeviceCapture;

DeviceCapture& capture_of(ibv_context* context) {
  return *device::Context::of(context)->device().capture();
}

const char* name_of(ibv_context* context) {
  return static_cast<const char*>(context->device->name);
}

std::string running_already(ibv_context* context) {
  const auto running = capture_of(context).file();
  const std::string where =
      running && !running->path().empty() ? " to " + running->path() : std::string();
  return std::string(name_of(context)) + " writes a capture" + where + " already; stop that first";
}

int start_capture(ibv_context* context, CaptureTarget& target, std::shared_ptr<void>& capture,
                  std::string& why) {
  if (!Process::owns(context)) {
    why = "the device belongs to the parent of this process; open it again after fork()";
    return ENODEV;
  }
  int failed = 0;
  const auto started = capture_of(context).start([&]() -> DeviceCapture::Opened {
    if (target.function) return CaptureFile::to(target.function);
    auto opened = CaptureFile::open(target.path);
    if (!opened) failed = errno;
    return opened;
  });
  if (!started) {
    why = started.error();
    return failed != 0 ? failed : EINVAL;
  }
  if (!*started) {
    why = running_already(context);
    return EBUSY;
  }
  target.path = (*started)->path();
  capture = *started;
  return 0;
}

// A child of fork(2) has closed its copy of the file already.
int stop_capture(ibv_context* context, const std::shared_ptr<void>& capture) {
  if (!Process::owns(context)) return 0;
  return capture_of(context).stop(*static_cast<CaptureFile*>(capture.get())) ? 0 : EDEADLK;
}

// Connections that have left TCP: there are no segments that could be written.
std::uint64_t unseen_connections(device::Device& device) {
  const auto live = device.statistics_registry().live();
  return static_cast<std::uint64_t>(std::ranges::count_if(
      live.queue_pairs, [](const auto& pair) { return pair.entry.carrier.name == "same-host"; }));
}

int read_capture(ibv_context* context, const std::shared_ptr<void>& capture,
                 CaptureCounts& counts) {
  const auto& file = *static_cast<const CaptureFile*>(capture.get());
  counts = {
      .running = file.writable(), .packets = file.packets(), .packets_lost = file.packets_lost()};
  if (Process::owns(context)) {
    counts.unseen_connections = unseen_connections(device::Context::of(context)->device());
  }
  return 0;
}

}  // namespace

void parts::captures(Table& table) {
  table.start_capture = verbs_call<start_capture>;
  table.stop_capture = verbs_call<stop_capture>;
  table.read_capture = verbs_call<read_capture>;
}

}  // namespace weft::provider
