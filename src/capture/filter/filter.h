// An expression that selects connections, operations, RPCs, storage commands and findings, such as
// `rpc.latency > 10ms && rpc.procedure == "WRITE" && peer == 10.0.0.7`. filter_fields.h has the
// fields, docs/dissect.md the grammar.
//
// The expression is translated once into a short program of comparisons and jumps. Its evaluation
// allocates nothing that depends on the expression, and does not recurse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "capture/filter/filter_fields.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/management.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/storage.hpp"

namespace weft::capture {

// The record that a filter is applied to: a connection, or an exchange or finding of it.
struct FilterRecord {
  const Connection* connection = nullptr;  // always set, except with `management`
  const Operation* operation = nullptr;
  const Rpc* rpc = nullptr;
  const StorageCommand* command = nullptr;
  const Finding* finding = nullptr;
  const ManagementDatagram* management = nullptr;
  std::int64_t origin_ns = 0;  // time of the first frame
  bool message = false;        // `operation` is a message for extraction: its end is not known
};

// The value of a field. Times are nanoseconds. A text is valid during the call only.
using FilterValue = std::variant<std::uint64_t, std::int64_t, std::string_view, HostAddress>;
using FilterVisitor = std::function<void(const FilterValue&)>;

// Passes each value that the record has for filter_fields[field] to `visit`: none, one or several.
void visit_field(std::size_t field, const FilterRecord& record, const FilterVisitor& visit);

// A mistake in an expression. `position` and `length` are the bytes of it that are wrong.
class FilterError : public std::runtime_error {
 public:
  FilterError(std::string sentence, std::size_t position, std::size_t length)
      : std::runtime_error(sentence), position_(position), length_(length) {}
  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::size_t length() const { return length_; }

 private:
  std::size_t position_;
  std::size_t length_;
};

// Returns the expression and a line with a caret under the mistake.
[[nodiscard]] std::string caret_text(std::string_view expression, const FilterError& error);

// A value in an expression, of the type of the field that it is compared with.
struct FilterLiteral {
  std::uint64_t number = 0;  // also the place in FilterField::words, from 0
  std::int64_t time_ns = 0;
  std::string text;  // in lower case
  // IPv4 addresses are mapped into IPv6 (RFC 4291 §2.5.5.2). `prefix` is the number of bits that
  // are compared.
  std::array<std::byte, 16> address{};
  unsigned prefix = 128;
  bool lid = false;  // `number` is a LID
};

struct FilterComparison {
  enum class Relation : std::uint8_t {
    exists,  // the record has the field
    equal,
    unequal,  // the record has the field, and none of its values is equal
    less,
    at_most,
    greater,
    at_least,
    contains,
  };

  std::size_t field = 0;  // index in filter_fields
  Relation relation = Relation::exists;
  std::vector<FilterLiteral> literals;  // one is enough

  [[nodiscard]] bool holds(const FilterRecord& record) const;
};

class Filter {
 public:
  // Throws FilterError.
  [[nodiscard]] static Filter parse(std::string_view expression);

  [[nodiscard]] bool takes(const FilterRecord& record) const;

 private:
  friend class FilterParser;

  struct Step {
    enum class Kind : std::uint8_t {
      compare,        // the result is that of comparisons_[at]
      invert,         // inverts the result
      jump_if_true,   // continues at steps_[at] if the result is true
      jump_if_false,  // continues there if it is false
    };
    Kind kind = Kind::compare;
    std::size_t at = 0;
  };

  std::vector<Step> steps_;
  std::vector<FilterComparison> comparisons_;
};

}  // namespace weft::capture
