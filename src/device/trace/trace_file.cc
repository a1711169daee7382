#include "device/trace/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <system_error>

#include "base/fault_handler.h"
#include "base/fork_mark.h"
#include "base/guarded_memory.h"
#include "base/kernel_clock.h"
#include "base/own_descriptors.h"
#include "base/system_call.h"
#include "base/utf8.h"
#include "base/write_signals.h"

namespace weft::device {
namespace {

// The trace viewers of browsers become slow above this size.
constexpr std::uint64_t most_bytes = 256ULL << 20;
constexpr std::uint64_t step_bytes = 1ULL << 20;
constexpr std::uint64_t page_bytes = 4096;  // or a part of a page
// The end of the JSON text. An event replaces it by as many characters and adds it again.
constexpr std::string_view ending = "\n]}";
constexpr std::string_view continuation = " ,\n";
// Room in the header for the number of events that were dropped.
constexpr int dropped_digits = 20;

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// As device/system.h has it: the child of fork(2) keeps the variables of the thread, and has
// another number.
long thread_id() {
  struct Known {
    std::uint64_t process = 0;
    long number = 0;
  };
  constinit static thread_local Known known;
  if (const std::uint64_t process = fork_mark(); known.process != process) {
    known = {process, system_call(SYS_gettid)};
  }
  return known.number;
}

// With errno; EWOULDBLOCK if another process writes the file.
Descriptor open_locked(const std::string& path) {
  constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  Descriptor file(own_descriptors::moved_high(::open(path.c_str(), flags, 0644)));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return {};
  if (!S_ISREG(status.st_mode)) {
    errno = ENODEV;  // as mmap(2)
    return {};
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    errno = EWOULDBLOCK;
    return {};
  }
  if (ftruncate(file.get(), 0) != 0) return {};
  return file;
}

// A write beyond the limit of the process raises SIGXFSZ.
std::uint64_t file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most_bytes;
  return std::min<std::uint64_t>(most_bytes, limit.rlim_cur);
}

std::uint64_t next_identity() {
  static constinit std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = utf8_bytes(text);
    const char first = text.front();
    if (first == '"' || first == '\\') result += '\\';
    if (size == 0) {
      result += '?';
    } else if (static_cast<unsigned char>(first) < ' ') {
      result += ' ';
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result;
}

Result<std::shared_ptr<TraceFile>, std::string> TraceFile::open(const std::string& path) {
  Descriptor file = open_locked(path);
  if (!file.valid() && errno == EWOULDBLOCK) {
    file = open_locked(path + "." + std::to_string(getpid()));
  }
  const auto problem = [&path] {
    return "WEFT_TRACE=" + path + ": cannot be written: " + std::generic_category().message(errno) +
           "; give the path of a regular file";
  };
  if (!file.valid()) return problem();
  const std::uint64_t limit_bytes = file_limit();
  // Address space only: what is beyond the end of the file is not touched.
  void* memory = mmap(nullptr, limit_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return problem();
  std::shared_ptr<TraceFile> made(
      new TraceFile(std::move(file), static_cast<char*>(memory), limit_bytes));
  catch_faults();
  if (!made->extend(step_bytes)) return problem();
  made->write_header();
  return made;
}

TraceFile::TraceFile(Descriptor file, char* memory, std::uint64_t limit_bytes)
    : file_(std::move(file)),
      memory_(memory),
      limit_bytes_(limit_bytes),
      identity_(next_identity()) {}

TraceFile::~TraceFile() {
  close();
  munmap(memory_, limit_bytes_);
}

std::uint64_t TraceFile::now_ns() {
  return kernel_clock_ns(CLOCK_MONOTONIC);
}

// The two clocks and the identity of the running kernel relate the times of several files.
void TraceFile::write_header() {
  const std::string program = first_line("/proc/self/comm");
  std::string text = fmt::format(
      R"({{"displayTimeUnit":"ns","otherData":{{"weft_trace":1,"pid":{},"host":"{}","boot":"{}",)"
      R"("program":"{}","monotonic_ns":{},"realtime_ns":{},"dropped":)",
      getpid(), json_text(host_name()), json_text(first_line("/proc/sys/kernel/random/boot_id")),
      json_text(program), kernel_clock_ns(CLOCK_MONOTONIC), kernel_clock_ns(CLOCK_REALTIME));
  dropped_at_ = text.size();
  text += fmt::format("{:>{}}", 0, dropped_digits);
  text += fmt::format(R"(}},"traceEvents":[{}{{"ph":"M","name":"process_name","pid":{},)"
                      R"("args":{{"name":"{} on {}"}}}}{})",
                      "\n", getpid(), json_text(program), json_text(host_name()), ending);
  store(memory_, text);
  used_bytes_ = text.size();
}

// Another program may cut the file meanwhile. Then a plain store would end this process by SIGBUS;
// so this one ends the trace.
void TraceFile::store(char* to, std::string_view text) {
  if (writable_ && !guarded_store(to, text.data(), text.size())) writable_ = false;
}

// The new part is filled with spaces, which may follow a JSON text. They are written as the file
// grows: a process that is killed meanwhile leaves no zero bytes. Without space on the disk, a
// store into the mapping would raise SIGBUS, and write(2) reports that.
bool TraceFile::extend(std::uint64_t bytes) {
  const std::uint64_t wanted = (size_bytes_ + bytes + step_bytes - 1) / step_bytes * step_bytes;
  if (full_ || wanted > limit_bytes_) return false;
  const std::string spaces(wanted - size_bytes_, ' ');
  // The program may have lowered its limit on the size of files.
  const BlockedWriteSignals blocked;
  for (std::uint64_t at = size_bytes_; at < wanted;) {
    const auto done = pwrite(file_.get(), spaces.data(), wanted - at, static_cast<off_t>(at));
    if (done < 0 && errno != EINTR) {
      full_ = true;
      return false;
    }
    at += static_cast<std::uint64_t>(std::max<ssize_t>(done, 0));
  }
  size_bytes_ = wanted;
  return true;
}

std::string TraceFile::place(std::uint64_t at_ns) {
  constexpr std::uint64_t ns_per_us = 1000;
  return fmt::format(R"("pid":{},"tid":{},"ts":{}.{:03})", getpid(), thread_id(), at_ns / ns_per_us,
                     at_ns % ns_per_us);
}

// The text is complete before the events are stored and after the last step, which makes them part
// of it. A process that is killed in between leaves some of them behind the text. Most would be
// killed while the store waits for a page, so a space is stored into each page before.
void TraceFile::add(std::string_view events) {
  const std::uint64_t more = events.size() + ending.size();
  if (used_bytes_ + more > size_bytes_ && !extend(more)) {
    const std::string count = fmt::format("{:>{}}", ++dropped_, dropped_digits);
    return store(memory_ + dropped_at_, count);
  }
  char* const end = memory_ + used_bytes_;
  for (auto at = used_bytes_; at < used_bytes_ + more; at = (at / page_bytes + 1) * page_bytes) {
    store(memory_ + at, " ");
  }
  store(end, std::string(events) + std::string(ending));
  store(end - ending.size(), continuation);
  used_bytes_ += more;
}

void TraceFile::name_thread() {
  static thread_local std::uint64_t named_in = 0;
  if (named_in == identity_) return;
  named_in = identity_;
  add(fmt::format(
      R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", getpid(),
      thread_id(),
      json_text(first_line(fmt::format("/proc/self/task/{}/comm", thread_id()).c_str()))));
}

void TraceFile::append(std::string_view events) {
  if (!writable_) return;
  const std::lock_guard lock(mutex_);
  if (!writable_) return;
  name_thread();
  add(events);
}

void TraceFile::mark(std::string_view category, std::string_view text) {
  append(fmt::format(R"({{"ph":"i","s":"t","cat":"{}","name":"{}",{}}})", category, json_text(text),
                     place(now_ns())));
}

void TraceFile::begin(std::string_view name) {
  append(fmt::format(R"({{"ph":"B","cat":"call","name":"{}",{}}})", name, place(now_ns())));
}

void TraceFile::end(std::string_view name) {
  append(fmt::format(R"({{"ph":"E","cat":"call","name":"{}",{}}})", name, place(now_ns())));
}

void TraceFile::close() {
  if (!writable_) return;
  const std::lock_guard lock(mutex_);
  writable_ = false;
  // The mapping stays: nothing touches it any more.
  [[maybe_unused]] const int cut = ftruncate(file_.get(), static_cast<off_t>(used_bytes_));
}

}  // namespace weft::device
