// Common parts of the capture tap's tests: addresses, scratch files and payload.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/tap/capture_tap.h"

namespace weft::device {

inline sockaddr_storage address_of(const char* text, std::uint16_t port) {
  sockaddr_storage storage{};
  sockaddr_in in{};
  sockaddr_in6 in6{};
  if (::inet_pton(AF_INET, text, &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&storage, &in, sizeof in);
  } else if (::inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    std::memcpy(&storage, &in6, sizeof in6);
  }
  return storage;
}

inline iovec piece_of(Bytes bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

inline std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

// Creates a directory for each test.
class CaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "weft-capture-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path(const char* name = "x.pcapng") const {
    return (directory_ / name).string();
  }

  static std::shared_ptr<CaptureFile> open(const std::string& path) {
    auto file = CaptureFile::open(path);
    if (!file) ADD_FAILURE() << file.error();
    return file ? *file : nullptr;
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace weft::device
