// Writes one JSON object per line, directly into the output. A trace has millions of operations; a
// library that builds the object first would need more time than the analysis.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace weft::capture {

class JsonLine {
 public:
  explicit JsonLine(fmt::memory_buffer& out) : out_(out) { open('{'); }

  JsonLine& text(std::string_view name, std::string_view value) {
    key(name);
    quoted(value);
    return *this;
  }
  template <std::integral T>
  JsonLine& number(std::string_view name, T value) {
    key(name);
    fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  JsonLine& boolean(std::string_view name, bool value) {
    key(name);
    raw(value ? "true" : "false");
    return *this;
  }
  // Writes a key, address or memory value as a string, because many JSON readers have no 64-bit
  // integers.
  JsonLine& hex(std::string_view name, std::uint64_t value) {
    key(name);
    fmt::format_to(std::back_inserter(out_), "\"{:#x}\"", value);
    return *this;
  }
  JsonLine& object(std::string_view name) {
    key(name);
    return open('{');
  }
  JsonLine& array(std::string_view name) {
    key(name);
    return open('[');
  }
  // Begins an object in an array.
  JsonLine& element() {
    separate();
    return open('{');
  }
  // Begins an array in an array.
  JsonLine& row() {
    separate();
    return open('[');
  }
  // Adds text that is JSON already to an array.
  JsonLine& made(std::string_view json) {
    separate();
    raw(json);
    return *this;
  }
  // Adds a number to an array.
  template <std::integral T>
  JsonLine& item(T value) {
    separate();
    fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  JsonLine& item(std::string_view value) {
    separate();
    quoted(value);
    return *this;
  }
  JsonLine& close(char bracket = '}') {
    out_.push_back(bracket);
    empty_ = false;
    return *this;
  }
  void end() {
    close();
    out_.push_back('\n');
  }

 private:
  JsonLine& open(char bracket) {
    out_.push_back(bracket);
    empty_ = true;
    return *this;
  }
  void separate() {
    if (!empty_) out_.push_back(',');
    empty_ = false;
  }
  void raw(std::string_view characters) {
    out_.append(characters.data(), characters.data() + characters.size());
  }
  void key(std::string_view name) {
    separate();
    out_.push_back('"');
    raw(name);
    raw("\":");
  }
  void quoted(std::string_view value) {
    out_.push_back('"');
    for (const char character : value) {
      if (character == '"' || character == '\\') {
        out_.push_back('\\');
        out_.push_back(character);
      } else if (static_cast<unsigned char>(character) < ' ') {
        fmt::format_to(std::back_inserter(out_), "\\u{:04x}", static_cast<int>(character));
      } else {
        out_.push_back(character);
      }
    }
    out_.push_back('"');
  }

  fmt::memory_buffer& out_;
  bool empty_ = true;
};

}  // namespace weft::capture
