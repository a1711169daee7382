// Captures of what the embedded device sends and receives, started and stopped by the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "weft/export.hpp"
#include "weft/handle.hpp"

namespace weft::verbs {

class Context;

namespace detail {
struct CaptureState;
}

// Gets a capture as it is written: one or more whole blocks of pcapng, of which the first call's
// are the section and the interface. The bytes are valid during the call.
//
// The function is called by the thread that moves the data: the progress thread of the device, or a
// thread of the program that posts, polls or waits. The connection waits meanwhile, so it should
// return soon. One call is made at a time. Locks of the device are held: the function must not call
// Weft, where it might wait for itself. An exception ends the capture, and is logged
// (weft/log.hpp).
using CaptureFunction = std::function<void(std::span<const std::byte> blocks)>;

// What a capture has so far.
struct CaptureStatus {
  bool running = false;            // until it is stopped, a write fails or the function throws
  std::uint64_t packets = 0;       // in the capture
  std::uint64_t packets_lost = 0;  // that are not, because a write has failed
  // Connections of the device, at present, that are not in the capture: they had left TCP when it
  // began (DeviceOptions::same_host). All others are in it.
  std::uint64_t unseen_connections = 0;
};

// A capture that runs until stop() or the destructor. It keeps the device open. start_capture()
// makes it.
//
// It has what the device's sockets move, as TCP segments and UDP datagrams with Ethernet and IP
// headers that are made up, and nothing of other sockets. A connection that exists already is in it
// from its next bytes on, as in any capture that begins in the middle: without its handshakes, and
// perhaps with half an FPDU first. `weft dissect` and Wireshark read that.
//
// Connections between two processes of one user on one host leave TCP, and then nothing is there to
// capture. Those that are established while a capture runs stay on TCP, also after its end; those
// that have left TCP before are not in it, and CaptureStatus::unseen_connections counts them. A
// device that is to be captured later can keep all of them on TCP: DeviceOptions::same_host.
//
// All functions are thread-safe. In a child of fork(2) the capture has ended.
class Capture {
 public:
  Capture(Capture&&) noexcept = default;
  // Stops the capture that it had.
  Capture& operator=(Capture&&) noexcept = default;
  // Stops the capture.
  ~Capture() = default;

  // Ends the capture; nothing if it has ended. When this returns, all that the device has moved
  // before the call is in the file or was passed to the function, the file is closed and complete,
  // and the function is not running and will not be called again. Throws Error(EDEADLK) in the
  // function of the capture.
  WEFT_API void stop();
  // The counts so far, or those at the end once the capture has ended.
  [[nodiscard]] WEFT_API CaptureStatus status() const;
  // The file in use; empty if the capture goes to a function. It is FILE.PID where another process
  // was writing FILE.
  [[nodiscard]] WEFT_API const std::string& path() const;

 private:
  friend WEFT_API Capture start_capture(const Context& context, const std::string& path);
  friend WEFT_API Capture start_capture(const Context& context, CaptureFunction function);
  explicit Capture(std::shared_ptr<detail::CaptureState> state);

  weft::detail::Held<std::shared_ptr<detail::CaptureState>, "weft::verbs::Capture"> state_;
};

// Begins to write what the device of `context` moves to a pcapng file, which is replaced, or passes
// it to a function. A device has one capture at a time, DeviceOptions::capture (WEFT_CAPTURE)
// included. Every packet is in the file when the call that moved it returns. Throws Error: EBUSY if
// a capture is running, EOPNOTSUPP for a device of the system, or that of opening the file.
[[nodiscard]] WEFT_API Capture start_capture(const Context& context, const std::string& path);
// Throws std::invalid_argument if `function` is empty.
[[nodiscard]] WEFT_API Capture start_capture(const Context& context, CaptureFunction function);
// The same for the embedded device that the process shares: that of devices(), and of all
// connections, messages and streams.
[[nodiscard]] WEFT_API Capture start_capture(const std::string& path);
[[nodiscard]] WEFT_API Capture start_capture(CaptureFunction function);

}  // namespace weft::verbs
