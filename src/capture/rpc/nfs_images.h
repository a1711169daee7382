// Reconstructs files from NFS traffic: one series of images with what clients wrote, and one with
// what they read. An image ends, and the next one begins as its copy, when known bytes change or
// SETATTR changes the size. Renames and hard links do not end an image.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/rpc/extraction.h"
#include "capture/tcp/range_set.h"
#include "weft/capture/rpc.hpp"

namespace weft::capture {

class NfsImages {
 public:
  // `directory` must outlive this object. Images are nfs/<connection>/<name or handle>.<written or
  // read>.<number>.
  explicit NfsImages(ExtractionDirectory& directory) : directory_(directory) {}

  void add(const Rpc& rpc);
  // Closes the files of the connection.
  void forget(ConnectionId connection);
  void finish();

 private:
  // Half of the largest file of common filesystems; data beyond it is left out.
  static constexpr std::uint64_t max_file_bytes = 1ULL << 43;
  // Files that are open at a time. Above the limit the eighth that was used least recently is
  // closed; if one of them is used again, it counts as another file.
  static constexpr std::size_t max_files = 65'536;
  // Names in directories, of all connections. Above the limit all are forgotten, and their renames
  // are not followed.
  static constexpr std::size_t max_entries = 262'144;
  static constexpr std::size_t max_names = 64;  // names of one file

  struct Image {
    std::string path;  // empty: not begun
    unsigned number = 0;
    RangeSet have;
    std::uint64_t size = 0;
    bool size_known = false;
    std::uint64_t first_frame = 0;
    std::uint64_t last_frame = 0;
  };
  enum class Direction : std::uint8_t { written, read };
  struct File {
    std::string stem;  // common part of its paths; empty until it has an image
    std::vector<std::string> names;
    Image written;
    Image read;
    std::uint64_t used = 0;  // number of its last use
  };
  using FileKey = std::pair<ConnectionId, FileHandle>;
  using EntryKey = std::pair<FileKey, std::string>;  // name in a directory

  void operation(const Rpc& rpc, const NfsOperation& operation);
  void learn(ConnectionId connection, const FileHandle& directory, const std::string& name,
             const FileHandle& handle);
  void follow_names(ConnectionId connection, const NfsOperation& operation);
  void rename(ConnectionId connection, const NfsOperation& operation);
  void place(const FileKey& key, Direction direction, const NfsOperation& operation,
             std::uint64_t frame);
  void set_size(const FileKey& key, std::uint64_t size, std::uint64_t frame);
  // Begins an image of a file that is new and empty, so that it exists even if nothing is written.
  void begin_empty(const FileKey& key, std::uint64_t frame);

  // Returns the file of this handle, and marks it as used.
  File& file_of(const FileKey& key);
  void close_oldest();
  [[nodiscard]] bool taken(const std::string& stem) const;

  Image& image(File& file, Direction direction) {
    return direction == Direction::written ? file.written : file.read;
  }
  void begin(const FileKey& key, File& file, Direction direction, std::uint64_t frame);
  void begin_next(const FileKey& key, File& file, Direction direction);
  [[nodiscard]] bool changes(const Image& image, std::uint64_t offset, Bytes bytes) const;
  void close(const FileKey& key, const File& file, Direction direction, Image& image);
  void close(const FileKey& key, File& file);

  ExtractionDirectory& directory_;
  std::map<FileKey, File> files_;
  std::map<EntryKey, FileHandle> entries_;
  std::uint64_t uses_ = 0;
};

}  // namespace weft::capture
