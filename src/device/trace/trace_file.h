// The file of `weft run --trace`: events as JSON, in the trace event format that ui.perfetto.dev
// and chrome://tracing read.
//
// The file is mapped and complete after each event, so it can be read while the program runs, and
// after it was ended by _exit(2) or a signal. Until close() spaces may follow the JSON text.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/result.h"

namespace weft::device {

// Thread-safe. A process has at most one file for each device with a trace.
class TraceFile {
 public:
  // Opens PATH, or PATH.<pid> if another process writes PATH, and empties it. The error is one
  // sentence.
  [[nodiscard]] static Result<std::shared_ptr<TraceFile>, std::string> open(
      const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // CLOCK_MONOTONIC, the clock of all events.
  [[nodiscard]] static std::uint64_t now_ns();
  // `"pid": ..., "tid": ..., "ts": ...` of an event of the calling thread.
  [[nodiscard]] std::string place(std::uint64_t at_ns);
  // Adds whole events: JSON objects, one a line, with a comma at the end of all lines but the last.
  // Beyond the limit of the file they are counted only.
  void append(std::string_view events);
  // A point in time with a text, in the track of the calling thread.
  void mark(std::string_view category, std::string_view text);
  // The beginning and the end of a call, in the track of the calling thread.
  void begin(std::string_view name);
  void end(std::string_view name);
  // Numbers the queue pairs of the file from 1.
  [[nodiscard]] std::uint64_t next_number() { return ++numbers_; }

  // Cuts what follows the JSON text. Nothing is added afterwards.
  void close();
  // For the child of fork(2): takes no lock, and leaves the parent's file alone. Its copy of the
  // descriptor would keep the lock of the file after the parent's end.
  void forget_after_fork() {
    writable_ = false;
    file_.reset();
  }

 private:
  TraceFile(Descriptor file, char* memory, std::uint64_t limit_bytes);
  void write_header();
  void name_thread();
  void add(std::string_view events);
  void store(char* to, std::string_view text);
  [[nodiscard]] bool extend(std::uint64_t bytes);

  std::mutex mutex_;
  std::atomic<bool> writable_{true};
  Descriptor file_;
  char* const memory_;  // limit_bytes_ of address space
  const std::uint64_t limit_bytes_;
  const std::uint64_t identity_;  // of this object in the process
  bool full_ = false;             // the disk; it is not asked for each event again
  std::uint64_t size_bytes_ = 0;  // of the file
  std::uint64_t used_bytes_ = 0;  // up to the end of the JSON text
  std::uint64_t dropped_at_ = 0;  // the place of the count in the header
  std::uint64_t dropped_ = 0;
  std::atomic<std::uint64_t> numbers_{0};
};

// The text within quotation marks, for JSON. The kernel cuts the names of programs, also inside a
// character: bytes that are not well-formed UTF-8 become question marks.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace weft::device
