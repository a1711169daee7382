// The length of private data where the transport pads it.
#include "connection/private_data_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace weft::connection::detail {
namespace {

using Data = std::vector<std::byte>;

constexpr auto request_bytes = static_cast<std::size_t>(CarriedBy::request);

Data bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Data padded(Data bytes, CarriedBy message) {
  bytes.resize(std::max(bytes.size(), static_cast<std::size_t>(message)));
  return bytes;
}

Data across(const Data& user, CarriedBy message) {
  const Data sent = padded(with_length(user, message), message);
  const auto received = without_padding(sent, message);
  return {received.begin(), received.end()};
}

TEST(PrivateData, KeepsItsLengthWhereItIsPadded) {
  for (const auto message : {CarriedBy::request, CarriedBy::acceptance, CarriedBy::rejection}) {
    const std::size_t most = static_cast<std::size_t>(message) - private_data_end_bytes;
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{20}, most}) {
      EXPECT_EQ(across(Data(length, std::byte{9}), message), Data(length, std::byte{9})) << length;
    }
  }
  // Zeros at its end belong to the user.
  const Data zeros(5);
  EXPECT_EQ(across(zeros, CarriedBy::request), zeros);
}

TEST(PrivateData, OfAPeerThatDoesNotKnowTheLengthIsAllTheUsers) {
  const Data foreign = padded(bytes_of("hello"), CarriedBy::request);
  EXPECT_TRUE(std::ranges::equal(without_padding(foreign, CarriedBy::request), foreign));
  const Data exact = bytes_of("hello");
  EXPECT_TRUE(std::ranges::equal(without_padding(exact, CarriedBy::request), exact));
  EXPECT_TRUE(without_padding(Data(request_bytes), CarriedBy::request).empty());
}

// Bytes that look like the end are the user's if what is before them does not fit.
TEST(PrivateData, ThatOnlyLooksPaddedIsLeftAlone) {
  Data bytes = with_length(bytes_of("hello"), CarriedBy::request);
  bytes[20] = std::byte{1};
  EXPECT_EQ(without_padding(bytes, CarriedBy::request).size(), request_bytes);
  Data too_long = with_length(bytes_of("hello"), CarriedBy::request);
  too_long[request_bytes - private_data_end_bytes] = std::byte{54};
  EXPECT_EQ(without_padding(too_long, CarriedBy::request).size(), request_bytes);
}

// A plain peer finds the data at the front, as without.
TEST(PrivateData, StartsWithTheUsersBytes) {
  const Data sent = with_length(bytes_of("hello"), CarriedBy::request);
  ASSERT_EQ(sent.size(), request_bytes);
  EXPECT_TRUE(std::ranges::equal(std::span(sent).first(5), bytes_of("hello")));
}

TEST(PrivateData, WithoutRoomForTheLengthIsSentAsItIs) {
  const Data large(request_bytes - 1, std::byte{1});
  EXPECT_EQ(with_length(large, CarriedBy::request), large);
  EXPECT_TRUE(with_length({}, CarriedBy::request).empty());
}

}  // namespace
}  // namespace weft::connection::detail
