#include "weft/capture/byte_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/bytes.h"
#include "base/size.h"
#include "capture/tcp/byte_window.h"

namespace weft::capture {
namespace {

// A record that is longer than this enlarges the window, in ByteWindow::fill().
constexpr std::size_t window_bytes = 256 * 1024;
// The longest of the signatures below is that of xz.
constexpr std::size_t magic_bytes = 6;

class StoredBytes final : public ByteStream {
 public:
  // Opens the file, and rejects a directory, which open() accepts.
  StoredBytes(const std::string& path, const std::atomic<bool>* stop)
      : path_(path), standard_input_(path == "-"), stop_(stop) {
    descriptor_ = standard_input_ ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw_error("cannot open");
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
      regular_ = true;
      size_ = static_cast<std::uint64_t>(status.st_size);
      // This is advice for the page cache: a failure changes nothing.
      (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
      errno = EISDIR;
      throw_error("cannot read");
    }
  }
  StoredBytes(const StoredBytes&) = delete;
  StoredBytes& operator=(const StoredBytes&) = delete;
  ~StoredBytes() override {
    // Standard input belongs to the process and stays open.
    if (!standard_input_) ::close(descriptor_);
  }

  // A signal interrupts the read only if the program was asked to stop.
  std::size_t read(MutableBytes out) override {
    for (;;) {
      if (!wait()) return 0;
      const ssize_t count = ::read(descriptor_, out.data(), out.size());
      if (count == 0) note_whether_emptied();
      if (count >= 0) {
        read_ += static_cast<std::uint64_t>(count);
        return static_cast<std::size_t>(count);
      }
      if (errno == EINTR && !(stop_ && stop_->load())) continue;
      if (errno == EINTR || errno == EAGAIN) return 0;
      throw_error("cannot read");
    }
  }
  [[nodiscard]] std::string problem() const override { return problem_; }
  [[nodiscard]] std::uint64_t stored_bytes_read() const override { return read_; }
  [[nodiscard]] std::uint64_t stored_bytes() const override { return size_; }

 private:
  // A program that begins its capture anew writes to the same file from its beginning: bytes that
  // come later do not continue what was read.
  void note_whether_emptied() {
    struct stat status {};
    const off_t position = regular_ ? ::lseek(descriptor_, 0, SEEK_CUR) : -1;
    if (position <= 0 || ::fstat(descriptor_, &status) != 0 || status.st_size >= position) return;
    problem_ = "was emptied or cut by its writer while it was read; read it again";
  }
  // Waits until the descriptor is readable. A pipe may never deliver anything, and the signal that
  // asks to stop may come just before read(), which would then block; so read() is called only when
  // it does not block. Returns false if the program was asked to stop.
  [[nodiscard]] bool wait() const {
    constexpr int moment_ms = 100;
    // poll(2) always finds a regular file readable, so the call is left out for it.
    if (regular_ || stop_ == nullptr) return true;
    pollfd readable{descriptor_, POLLIN, 0};
    while (::poll(&readable, 1, moment_ms) <= 0) {
      if (stop_->load()) return false;
    }
    return true;
  }
  [[noreturn]] void throw_error(const char* what) const {
    throw std::system_error(
        errno, std::generic_category(),
        std::string(what) + " " + (standard_input_ ? std::string("standard input") : path_));
  }

  std::string path_;
  bool standard_input_;
  const std::atomic<bool>* stop_;
  int descriptor_ = -1;
  bool regular_ = false;
  std::uint64_t read_ = 0;
  std::uint64_t size_ = 0;
  std::string problem_;
};

// Returns the bytes that were read to detect the format, and then the rest.
class Prefixed final : public ByteStream {
 public:
  Prefixed(std::vector<std::byte> prefix, std::unique_ptr<ByteStream> rest)
      : prefix_(std::move(prefix)), rest_(std::move(rest)) {}

  std::size_t read(MutableBytes out) override {
    if (given_ == prefix_.size()) return rest_->read(out);
    const std::size_t count = std::min(out.size(), prefix_.size() - given_);
    std::memcpy(out.data(), prefix_.data() + given_, count);
    given_ += count;
    return count;
  }
  [[nodiscard]] std::string problem() const override { return rest_->problem(); }
  [[nodiscard]] std::uint64_t stored_bytes_read() const override {
    return rest_->stored_bytes_read();
  }
  [[nodiscard]] std::uint64_t stored_bytes() const override { return rest_->stored_bytes(); }

 private:
  std::vector<std::byte> prefix_;
  std::size_t given_ = 0;
  std::unique_ptr<ByteStream> rest_;
};

// The bytes belong to the caller, which keeps them as long as the stream exists.
class InMemory final : public ByteStream {
 public:
  explicit InMemory(Bytes bytes) : bytes_(bytes) {}

  std::size_t read(MutableBytes out) override {
    const std::size_t count = std::min<std::size_t>(out.size(), bytes_.size() - read_);
    if (count > 0) std::memcpy(out.data(), bytes_.data() + read_, count);
    read_ += count;
    return count;
  }
  [[nodiscard]] std::uint64_t stored_bytes_read() const override { return read_; }
  [[nodiscard]] std::uint64_t stored_bytes() const override { return bytes_.size(); }

 private:
  Bytes bytes_;
  std::size_t read_ = 0;
};

// Reads the first bytes; a pipe may deliver them one by one.
std::vector<std::byte> read_magic(ByteStream& stream) {
  std::vector<std::byte> magic(magic_bytes);
  std::size_t have = 0;
  while (have < magic.size()) {
    const std::size_t count = stream.read(MutableBytes(magic).subspan(have));
    if (count == 0) break;
    have += count;
  }
  magic.resize(have);
  return magic;
}

// RFC 1952 §2.3.1: ID1 and ID2.
bool is_gzip(Bytes magic) {
  return magic.size() >= 2 && magic[0] == std::byte{0x1F} && magic[1] == std::byte{0x8B};
}

// RFC 8878 §3.1: the stream begins with a frame, or with a skippable frame that some tools write
// first.
bool is_zstd(Bytes magic) {
  if (magic.size() < sizeof(std::uint32_t)) return false;
  const auto number = load_le<std::uint32_t>(magic.data());
  return number == 0xFD2FB528 || (number & 0xFFFFFFF0) == 0x184D2A50;
}

// This is the magic number of the LZ4 frame format, which is stored in little-endian order.
bool is_lz4(Bytes magic) {
  return magic.size() >= sizeof(std::uint32_t) &&
         load_le<std::uint32_t>(magic.data()) == 0x184D2204;
}

// The digit is the size of a block in units of 100,000 bytes.
bool is_bzip2(Bytes magic) {
  return magic.size() >= 4 && magic[0] == std::byte{'B'} && magic[1] == std::byte{'Z'} &&
         magic[2] == std::byte{'h'} && magic[3] >= std::byte{'1'} && magic[3] <= std::byte{'9'};
}

bool is_xz(Bytes magic) {
  constexpr std::array begin{std::byte{0xFD}, std::byte{'7'}, std::byte{'z'},
                             std::byte{'X'},  std::byte{'Z'}, std::byte{0}};
  return std::ranges::equal(magic, begin);
}

}  // namespace

std::unique_ptr<ByteStream> open_stored_bytes(const std::string& path,
                                              const std::atomic<bool>* stop) {
  return std::make_unique<StoredBytes>(path, stop);
}

std::unique_ptr<ByteStream> bytes_in_memory(Bytes bytes) {
  return std::make_unique<InMemory>(bytes);
}

// The content decides about the format and not the name, so that pipes are unpacked as well.
std::unique_ptr<ByteStream> open_bytes(const std::string& path, const std::atomic<bool>* stop) {
  auto stored = open_stored_bytes(path, stop);
  const auto magic = read_magic(*stored);
  auto whole = std::make_unique<Prefixed>(magic, std::move(stored));
  if (is_gzip(magic)) return unpack_gzip(std::move(whole));
  if (is_zstd(magic)) return unpack_zstd(std::move(whole));
  if (is_xz(magic)) return unpack_xz(std::move(whole));
  if (is_bzip2(magic)) return unpack_bzip2(std::move(whole));
  if (is_lz4(magic)) return unpack_lz4(std::move(whole));
  return whole;
}

ByteWindow::ByteWindow(std::unique_ptr<ByteStream> stream)
    : stream_(std::move(stream)), buffer_(window_bytes) {}

// Bytes that are not in the window yet are dropped by fill() when they arrive. A long skip
// therefore needs no memory, and it works on pipes, which cannot seek.
void ByteWindow::skip(std::uint64_t bytes) {
  position_ += bytes;
  const std::size_t here = to_size(std::min<std::uint64_t>(bytes, end_ - begin_));
  begin_ += here;
  to_skip_ += bytes - here;
}

// Reads until `bytes` are in the window or none are available. It moves the rest to the beginning
// of the buffer, which is short.
void ByteWindow::fill(std::size_t bytes) {
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  while (end_ - begin_ < bytes) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const std::size_t count = stream_->read(MutableBytes(buffer_).subspan(end_));
    if (count == 0) return;
    end_ += count;
    // Bytes to skip are left only while the window is empty.
    const std::size_t skipped = to_size(std::min<std::uint64_t>(to_skip_, count));
    to_skip_ -= skipped;
    begin_ += skipped;
  }
}

}  // namespace weft::capture
