// Files put together from NFS traffic, and where they are written.
#include "capture/rpc/nfs_images.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>

#include "support/random.h"

namespace weft::capture::test {
namespace {

using weft::test::pattern;
using Buffer = std::vector<std::byte>;

const FileHandle root{std::byte{1}};
const FileHandle file{std::byte{2}};
const FileHandle other_file{std::byte{3}};

// A directory that is removed when the test ends.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string path = testing::TempDir() + "weft-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error(path);
    path_ = path;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct NfsImagesTest : testing::Test {
  TemporaryDirectory parent;
  ExtractionDirectory directory{parent.path() / "out"};
  NfsImages images{directory};
  std::uint64_t frame = 0;
  nlohmann::json index;

  void reply(NfsOperation operation, ConnectionId connection = 0) {
    operation.answered = true;
    Rpc rpc;
    rpc.connection = connection;
    rpc.reply.emplace().first.frame = ++frame;
    rpc.nfs.emplace().version = 3;
    rpc.nfs->operations.push_back(std::move(operation));
    images.add(rpc);
  }
  void lookup(const std::string& name, const FileHandle& found) {
    NfsOperation operation;
    operation.name = "LOOKUP";
    operation.handle = root;
    operation.entry = name;
    operation.found = found;
    reply(operation);
  }
  void move(std::string_view name, std::uint64_t offset, const Assembled& bytes, bool end = false,
            const FileHandle& handle = file) {
    NfsOperation operation;
    operation.name = name;
    operation.handle = handle;
    operation.has_range = true;
    operation.offset = offset;
    operation.bulk = bytes;
    operation.end_of_file = end;
    reply(operation);
  }
  void write(std::uint64_t offset, const Buffer& bytes) { move("WRITE", offset, Assembled(bytes)); }
  void set_size(std::uint64_t size) {
    NfsOperation operation;
    operation.name = "SETATTR";
    operation.handle = file;
    operation.new_size = size;
    reply(operation);
  }
  // Name to content.
  std::map<std::string, Buffer> finish() {
    images.finish();
    directory.finish();
    const auto out = parent.path() / "out";
    std::ifstream(out / "index.json") >> index;
    std::map<std::string, Buffer> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
      if (!entry.is_regular_file() || entry.path().filename() == "index.json") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      const Bytes bytes = std::as_bytes(std::span(text));
      files[std::filesystem::relative(entry.path(), out)] = {bytes.begin(), bytes.end()};
    }
    return files;
  }
};

Buffer spliced(Buffer whole, std::size_t at, const Buffer& piece) {
  std::ranges::copy(piece, whole.begin() + static_cast<std::ptrdiff_t>(at));
  return whole;
}

TEST_F(NfsImagesTest, PiecesInAnyOrderMakeAFile) {
  const Buffer content = pattern(3000);
  lookup("name", file);
  write(2000, {content.begin() + 2000, content.end()});
  write(0, {content.begin(), content.begin() + 1000});
  write(1000, {content.begin() + 1000, content.begin() + 2000});
  write(500, {content.begin() + 500, content.begin() + 1500});  // the same again
  const auto files = finish();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.at("nfs/1/name.written.1"), content);
  EXPECT_EQ(index[0]["complete"], true);
  EXPECT_EQ(index[0]["first_frame"], 2);
  EXPECT_EQ(index[0]["last_frame"], 5);
}

TEST_F(NfsImagesTest, ChangedBytesBeginANewImage) {
  const Buffer content = pattern(1000);
  const Buffer changed = pattern(100, 9);
  lookup("name", file);
  write(0, content);
  write(300, changed);
  move("READ", 0, Assembled(content), true);
  move("READ", 0, Assembled(spliced(content, 300, changed)), true);
  const auto files = finish();
  ASSERT_EQ(files.size(), 4U);
  for (const char* direction : {"written", "read"}) {
    const std::string stem = std::string("nfs/1/name.") + direction;
    EXPECT_EQ(files.at(stem + ".1"), content);
    EXPECT_EQ(files.at(stem + ".2"), spliced(content, 300, changed));
  }
}

TEST_F(NfsImagesTest, SizesAreSet) {
  Buffer content = pattern(1000);
  lookup("name", file);
  write(0, content);
  set_size(600);
  set_size(600);
  set_size(800);
  const auto files = finish();
  EXPECT_EQ(files.at("nfs/1/name.written.1"), content);
  content.resize(600);
  EXPECT_EQ(files.at("nfs/1/name.written.2"), content);
  content.resize(800);
  EXPECT_EQ(files.at("nfs/1/name.written.3"), content);
  EXPECT_EQ(files.size(), 3U);
}

// What is between was never written, and a copy does not write it either.
TEST_F(NfsImagesTest, TheNextImageOfALargeFileWithHolesHasThemToo) {
  constexpr std::uint64_t large = 1ULL << 42;
  write(0, pattern(10, 1));
  write(large, pattern(10, 2));
  write(0, pattern(10, 3));
  images.finish();
  for (const char* name : {"02.written.1.incomplete", "02.written.2.incomplete"}) {
    const auto path = parent.path() / "out" / "nfs" / "1" / name;
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0) << name;
    EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), large + 10);
    EXPECT_LT(status.st_blocks, 1'000) << name;
  }
  Buffer end(10);
  directory.read_at("nfs/1/02.written.2.incomplete", large, end);
  EXPECT_EQ(end, pattern(10, 2));
  directory.read_at("nfs/1/02.written.2.incomplete", 0, end);
  EXPECT_EQ(end, pattern(10, 3));
}

TEST_F(NfsImagesTest, HolesAreSaidToBeThere) {
  const Buffer content = pattern(1000);
  lookup("name", file);
  write(0, {content.begin(), content.begin() + 100});
  Assembled flawed(Bytes(content).subspan(200, 300));
  flawed.mark({.begin = 50, .end = 60, .flaw = Flaw::missing});
  move("WRITE", 200, flawed);
  const auto files = finish();
  ASSERT_TRUE(files.contains("nfs/1/name.written.1.incomplete"));
  EXPECT_EQ(index[0]["complete"], false);
  const nlohmann::json missing = {{{"begin", 100}, {"end", 200}}, {{"begin", 250}, {"end", 260}}};
  EXPECT_EQ(index[0]["missing"], missing);
}

TEST_F(NfsImagesTest, AFileThatWasNotReadToItsEndIsIncomplete) {
  move("READ", 0, Assembled(pattern(100)));
  const auto files = finish();
  EXPECT_TRUE(files.contains("nfs/1/02.read.1.incomplete")) << "by its handle, without a name";
  EXPECT_EQ(index[0]["end_seen"], false);
}

TEST_F(NfsImagesTest, RenamesAndLinksDoNotSplit) {
  lookup("old", file);
  write(0, pattern(10));
  NfsOperation operation;
  operation.name = "RENAME";
  operation.handle = root;
  operation.entry = "old";
  operation.target_directory = root;
  operation.target = "new";
  reply(operation);
  operation = {};
  operation.name = "LINK";
  operation.handle = file;
  operation.target_directory = root;
  operation.entry = "link";
  reply(operation);
  write(10, pattern(10));
  const auto files = finish();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.begin()->first, "nfs/1/old.written.1");
  EXPECT_EQ(index[0]["names"], (nlohmann::json{"old", "new", "link"}));
}

TEST_F(NfsImagesTest, EqualNamesAndConnectionsStayApart) {
  lookup("name", file);
  lookup("name", other_file);
  write(0, pattern(10, 1));
  move("WRITE", 0, Assembled(pattern(10, 2)), false, other_file);
  NfsOperation operation;
  operation.name = "WRITE";
  operation.handle = file;
  operation.bulk = Assembled(pattern(10, 3));
  reply(operation, 1);
  const auto files = finish();
  EXPECT_EQ(files.at("nfs/1/name.written.1"), pattern(10, 1));
  EXPECT_EQ(files.at("nfs/1/name~2.written.1"), pattern(10, 2));
  EXPECT_EQ(files.at("nfs/2/02.written.1"), pattern(10, 3));
}

TEST_F(NfsImagesTest, WhatFailedLeavesNothing) {
  NfsOperation operation;
  operation.name = "WRITE";
  operation.handle = file;
  operation.bulk = Assembled(pattern(10));
  operation.status = 28;
  reply(operation);
  EXPECT_TRUE(finish().empty());
  EXPECT_EQ(index, nlohmann::json::array());
}

TEST_F(NfsImagesTest, FilesOfAForgottenConnectionAreDoneWith) {
  const Buffer content = pattern(10);
  const Buffer later = pattern(20, 3);
  lookup("name", file);
  write(0, content);
  images.forget(0);
  lookup("name", file);
  write(0, later);
  const auto files = finish();
  EXPECT_EQ(files.at("nfs/1/name.written.1"), content);
  EXPECT_EQ(files.at("nfs/1/name~2.written.1"), later);
  EXPECT_EQ(index.size(), 2U);
}

TEST_F(NfsImagesTest, OffsetsThatNoFileHasAreIgnored) {
  move("WRITE", ~std::uint64_t{0} - 5, Assembled(pattern(10)));
  move("WRITE", 1ULL << 62, Assembled(pattern(10)));
  move("WRITE", 1ULL << 44, Assembled(pattern(10)));
  set_size(~std::uint64_t{0});
  EXPECT_TRUE(finish().empty());
}

TEST_F(NfsImagesTest, NamesNeverLeaveTheDirectory) {
  const char* const hostile[] = {"../../etc/passwd", "..", ".", "/etc/passwd", "a/b", "\n", "-rf"};
  std::byte number{10};
  for (const char* name : hostile) {
    const FileHandle handle{number};
    number = static_cast<std::byte>(std::to_integer<int>(number) + 1);
    lookup(name, handle);
    move("WRITE", 0, Assembled(pattern(10)), false, handle);
  }
  const auto files = finish();
  EXPECT_EQ(files.size(), std::size(hostile));
  for (const auto& entry : std::filesystem::directory_iterator(parent.path())) {
    EXPECT_EQ(entry.path().filename(), "out");
  }
  for (const auto& entry : std::filesystem::directory_iterator(parent.path() / "out" / "nfs")) {
    EXPECT_EQ(entry.path().filename(), "1");
  }
}

TEST(SafeFileName, IsAlwaysOneHarmlessComponent) {
  EXPECT_EQ(safe_file_name("name-1_2.txt"), "name-1_2.txt");
  EXPECT_EQ(safe_file_name(".hidden"), "%2Ehidden");
  EXPECT_EQ(safe_file_name(".."), "%2E.");
  EXPECT_EQ(safe_file_name("a/b"), "a%2Fb");
  EXPECT_EQ(safe_file_name("100%"), "100%25");
  EXPECT_EQ(safe_file_name(""), "nameless");
  EXPECT_LE(safe_file_name(std::string(5000, '/')).size(), 120U);
  for (int code = 0; code < 256; ++code) {
    const std::string safe = safe_file_name(std::string(3, static_cast<char>(code)));
    EXPECT_EQ(safe.find('/'), std::string::npos);
    EXPECT_NE(safe[0], '.');
  }
}

// At the end of a file pread(2) sets no errno, so the error has a code and a text of its own.
TEST(ExtractionDirectory, AFileThatWasShortenedIsNamed) {
  const TemporaryDirectory parent;
  ExtractionDirectory directory(parent.path() / "out");
  directory.write("short", pattern(10));
  Buffer read(8);
  errno = ENOENT;
  try {
    directory.read_at("short", 4, read);
    FAIL() << "8 bytes were read where 6 are left";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::io_error);
    EXPECT_NE(std::string(error.what()).find("out/short: the file ends before byte 12"),
              std::string::npos)
        << error.what();
  }
}

TEST(ExtractionDirectory, IsNewOrEmpty) {
  const TemporaryDirectory parent;
  std::ofstream(parent.path() / "something") << "here";
  EXPECT_THROW(ExtractionDirectory(parent.path()), std::runtime_error);
}

}  // namespace
}  // namespace weft::capture::test
