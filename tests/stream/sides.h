// Both ends of a stream in one process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/host.h"
#include "support/needs.h"
#include "support/random.h"
#include "weft/stream.hpp"

namespace weft::stream {

using namespace std::chrono_literals;
inline constexpr auto test_timeout = 60s;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Sides {
  explicit Sides(const Options& options = {}) : Sides(options, options) {}
  Sides(const Options& of_active, const Options& of_passive)
      : listener({test::host(), 0}, of_passive), active(of_active) {
    listener.listen();
    active.start_connecting({test::host(), listener.port()});
    passive.emplace(listener.accept(test_timeout));
    EXPECT_TRUE(active.await_connected(test_timeout));
  }

  Listener listener;
  Stream active;
  std::optional<Stream> passive;
};

// Receives exactly this many bytes, or fewer if the stream ends or fails.
inline std::vector<std::byte> receive_all(Stream& from, std::size_t bytes) {
  std::vector<std::byte> got(bytes);
  const auto outcome = from.receive(got, test_timeout, {.wait_all = true});
  got.resize(outcome.bytes);
  return got;
}

// Fixture of tests that run in both variants.
class BothVariants : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (GetParam() == Variant::immediate) WEFT_NEEDS_IMMEDIATES(test::open_device());
  }

  [[nodiscard]] static Options options() {
    Options options;
    options.variant = GetParam();
    return options;
  }
};

inline std::string variant_name(const testing::TestParamInfo<Variant>& info) {
  return info.param == Variant::immediate ? "Immediate" : "WriteAndSend";
}

#define WEFT_BOTH_VARIANTS(suite) \
  INSTANTIATE_TEST_SUITE_P(       \
      All, suite, testing::Values(Variant::immediate, Variant::write_and_send), variant_name)

}  // namespace weft::stream
