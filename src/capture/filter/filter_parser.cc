// The parser of filter expressions, by recursive descent:
//
//   either     = both { ( "||" | "or" ) both }
//   both       = term { ( "&&" | "and" ) term }
//   term       = ( "!" | "not" ) term | "(" either ")" | comparison
//   comparison = FIELD [ RELATION VALUE | "in" "{" VALUE { "," VALUE } "}" ]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "capture/filter/filter.h"
#include "capture/filter/filter_text.h"

namespace weft::capture {
namespace {

using Relation = FilterComparison::Relation;

constexpr std::array<std::pair<std::string_view, Relation>, 7> relations{{
    {"==", Relation::equal},
    {"!=", Relation::unequal},
    {"<", Relation::less},
    {"<=", Relation::at_most},
    {">", Relation::greater},
    {">=", Relation::at_least},
    {"contains", Relation::contains},
}};

struct Token {
  enum class Kind : std::uint8_t { end, word, quoted, symbol };
  Kind kind = Kind::end;
  std::string_view text;  // without its quotes
  std::size_t position = 0;
  std::size_t length = 0;
};

// Bytes above ASCII belong to words, so that "µs" is one.
bool is_word_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return (value >= '0' && value <= '9') || (value >= 'a' && value <= 'z') ||
         (value >= 'A' && value <= 'Z') || value >= 0x80 ||
         std::string_view("_.:/-+").find(byte) != std::string_view::npos;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) < 4) ++at_;
    if (at_ == text_.size()) return {Token::Kind::end, {}, at_, 1};
    if (text_[at_] == '"' || text_[at_] == '\'') return quoted();
    std::size_t length = 0;
    while (at_ + length < text_.size() && is_word_byte(text_[at_ + length])) ++length;
    if (length > 0) return take(Token::Kind::word, length);
    for (const std::string_view two : {"&&", "||", "==", "!=", "<=", ">="}) {
      if (text_.substr(at_, 2) == two) return take(Token::Kind::symbol, 2);
    }
    return take(Token::Kind::symbol, 1);
  }

 private:
  Token take(Token::Kind kind, std::size_t length) {
    const Token token{kind, text_.substr(at_, length), at_, length};
    at_ += length;
    return token;
  }
  // Both kinds of quotes exist, so that a text may contain the other one.
  Token quoted() {
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) {
      throw FilterError("the text that begins here has no closing quote", at_, text_.size() - at_);
    }
    const Token token{Token::Kind::quoted, text_.substr(at_ + 1, end - at_ - 1), at_,
                      end + 1 - at_};
    at_ = end + 1;
    return token;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string found_text(const Token& token) {
  return token.kind == Token::Kind::end ? "the expression ends"
                                        : fmt::format("found '{}'", token.text);
}

}  // namespace

class FilterParser {
 public:
  explicit FilterParser(std::string_view text) : lexer_(text), token_(lexer_.next()) {}

  Filter parse() {
    either();
    if (token_.kind != Token::Kind::end) {
      fail(fmt::format("expected && or || or the end, and {}", found_text(token_)));
    }
    return std::move(filter_);
  }

 private:
  using Step = Filter::Step;
  // Each level takes some stack.
  static constexpr int max_depth = 200;

  [[noreturn]] void fail(std::string sentence) const {
    throw FilterError(std::move(sentence), token_.position, token_.length);
  }
  void advance() { token_ = lexer_.next(); }
  [[nodiscard]] bool is(std::string_view text) const {
    return token_.kind != Token::Kind::quoted && token_.kind != Token::Kind::end &&
           token_.text == text;
  }
  bool skip(std::string_view text) {
    if (!is(text)) return false;
    advance();
    return true;
  }
  void add(Step::Kind kind, std::size_t at) { filter_.steps_.push_back({kind, at}); }

  // Parses operands with the same operator between them. Each one but the last is followed by a
  // jump to the end, which is taken if it decides the result.
  template <typename Operand>
  void chain(std::string_view symbol, std::string_view word, Step::Kind jump, Operand operand) {
    std::vector<std::size_t> jumps;
    operand();
    while (is(symbol) || is(word)) {
      advance();
      jumps.push_back(filter_.steps_.size());
      add(jump, 0);
      operand();
    }
    for (const std::size_t at : jumps) filter_.steps_[at].at = filter_.steps_.size();
  }
  void either() {
    chain("||", "or", Step::Kind::jump_if_true, [this] { both(); });
  }
  void both() {
    chain("&&", "and", Step::Kind::jump_if_false, [this] { term(); });
  }
  void term() {
    if (++depth_ > max_depth) fail("too many parentheses and negations in each other");
    if (skip("!") || skip("not")) {
      term();
      add(Step::Kind::invert, 0);
    } else if (skip("(")) {
      either();
      if (!skip(")")) fail(fmt::format("expected ), and {}", found_text(token_)));
    } else {
      comparison();
    }
    --depth_;
  }

  void comparison() {
    if (token_.kind != Token::Kind::word) {
      fail(fmt::format("expected a field, and {}", found_text(token_)));
    }
    const auto field = find_field(token_.text);
    if (!field) fail(no_field_text(token_.text));
    advance();
    FilterComparison comparison{.field = *field, .relation = Relation::exists, .literals = {}};
    if (is("in")) {
      advance();
      comparison.relation = Relation::equal;
      values(comparison);
    } else if (const auto relation = relation_of(filter_fields[*field])) {
      comparison.relation = *relation;
      value(comparison);
    }
    add(Step::Kind::compare, filter_.comparisons_.size());
    filter_.comparisons_.push_back(std::move(comparison));
  }

  std::optional<Relation> relation_of(const FilterField& field) {
    using Type = FilterField::Type;
    if (is("=")) fail("= is not an operator; equality is ==");
    if (token_.kind == Token::Kind::quoted) return std::nullopt;
    for (const auto& [name, relation] : relations) {
      if (token_.text != name) continue;
      const bool ordered =
          field.type == Type::number || field.type == Type::time || field.type == Type::level;
      if (relation == Relation::contains ? field.type != Type::text
                                         : relation >= Relation::less && !ordered) {
        fail(fmt::format("{} does not apply to {}", name, field.name));
      }
      advance();
      return relation;
    }
    return std::nullopt;
  }

  void values(FilterComparison& comparison) {
    if (!skip("{")) fail(fmt::format("expected {{, and {}", found_text(token_)));
    do {
      value(comparison);
    } while (skip(","));
    if (!skip("}")) fail(fmt::format("expected , or }}, and {}", found_text(token_)));
  }

  void value(FilterComparison& comparison) {
    if (token_.kind != Token::Kind::word && token_.kind != Token::Kind::quoted) {
      fail(fmt::format("expected a value, and {}", found_text(token_)));
    }
    FilterLiteral literal;
    const std::string wrong = read_literal(filter_fields[comparison.field], token_.text, literal);
    if (!wrong.empty()) fail(wrong);
    comparison.literals.push_back(std::move(literal));
    advance();
  }

  Lexer lexer_;
  Token token_;
  Filter filter_;
  int depth_ = 0;
};

Filter Filter::parse(std::string_view expression) {
  return FilterParser(expression).parse();
}

// Bytes that continue a character of UTF-8 take no column. Other white space would move the caret.
std::string caret_text(std::string_view expression, const FilterError& error) {
  const auto columns = [](std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80; }));
  };
  std::string line(expression);
  for (char& byte : line) {
    if (static_cast<unsigned char>(byte) < ' ') byte = ' ';
  }
  const std::size_t before = columns(expression.substr(0, error.position()));
  const std::size_t marked =
      std::max<std::size_t>(columns(expression.substr(error.position(), error.length())), 1);
  return fmt::format("{}\n{}^{}", line, std::string(before, ' '), std::string(marked - 1, '~'));
}

}  // namespace weft::capture
