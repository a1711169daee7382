#include "capture/rpc/xdr_format.h"

#include <gtest/gtest.h>

#include "capture/rpc/nfs4_table.h"
#include "capture/rpc_builder.h"
#include "wire/xdr.h"

namespace weft::capture::test {
namespace {

// How many bytes a format skips; nothing where it fails.
std::optional<std::size_t> skipped(const Buffer& bytes, std::string_view format) {
  wire::XdrReader in(bytes);
  skip_items(in, format);
  if (!in.ok()) return {};
  return in.position();
}

TEST(XdrFormat, SkipsItems) {
  const Buffer zeros(64);
  EXPECT_EQ(skipped(zeros, ""), 0U);
  EXPECT_EQ(skipped(zeros, "48SKV"), 52U);
  EXPECT_EQ(skipped(zeros, "c"), 20U);
  EXPECT_EQ(skipped(zeros, "ba"), 12U);
  EXPECT_EQ(skipped(Xdr().text("hello").u32(9), "o4"), 16U);
  EXPECT_EQ(skipped(Buffer(8), "S"), std::nullopt);
}

TEST(XdrFormat, SkipsArraysOptionsAndUnions) {
  EXPECT_EQ(skipped(Xdr().u32(2).u32(1).text("a").u32(2).text("b").u32(9), "[4o]4"), 32U);
  EXPECT_EQ(skipped(Xdr().u32(1).u64(5).u32(0), "?(8)?(8)"), 16U);
  constexpr auto choice = "{0:|1:8|22:4[8]|*:S}4";
  EXPECT_EQ(skipped(Xdr().u32(0).u32(7), choice), 8U);
  EXPECT_EQ(skipped(Xdr().u32(1).u64(7).u32(7), choice), 16U);
  EXPECT_EQ(skipped(Xdr().u32(22).u32(7).u32(2).u64(1).u64(2).u32(7), choice), 32U);
  EXPECT_EQ(skipped(Xdr().u32(5).zeros(16).u32(7), choice), 24U);
  EXPECT_EQ(skipped(Xdr().u32(2), "{0:|1:{3:4|*:}}"), std::nullopt);
  EXPECT_EQ(skipped(Xdr().u32(1).u32(3).u32(0), "{0:|1:{3:4|*:}}"), 12U);
  EXPECT_EQ(skipped(Xdr().u32(2), "?(8)"), std::nullopt);
}

TEST(XdrFormat, EndsWithCountsThatCannotFollow) {
  EXPECT_EQ(skipped(Xdr().u32(0xFFFFFFFF).u32(1), "[4]"), std::nullopt);
}

// Every format is one: zeros, which choose the first branch and empty arrays, fit all of them.
TEST(Nfs4Table, HasFormatsThatRead) {
  const Buffer zeros(1024);
  std::size_t operations = 0;
  for (std::uint32_t number = 0; number < 100; ++number) {
    for (const bool callback : {false, true}) {
      const Nfs4Operation* operation = find_nfs4_operation(number, callback);
      if (operation == nullptr) continue;
      ++operations;
      // A server is named in one of three ways, and none of them is 0.
      const bool no_branch_for_zero = operation->name == "COPY_NOTIFY";
      EXPECT_NE(skipped(zeros, operation->arguments).has_value(), no_branch_for_zero)
          << operation->name;
      EXPECT_TRUE(skipped(zeros, operation->result)) << operation->name;
    }
  }
  EXPECT_EQ(operations, 73U + 13U);
}

}  // namespace
}  // namespace weft::capture::test
