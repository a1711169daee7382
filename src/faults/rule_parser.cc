#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

#include "faults/action_parser.h"
#include "faults/mistake.h"
#include "faults/names.h"
#include "faults/numbers.h"
#include "faults/rules.h"

namespace weft::faults {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// The words of a rule, up to a comment.
std::vector<Word> words_of(std::string_view rule) {
  std::vector<Word> words;
  std::size_t at = 0;
  while (at < rule.size()) {
    if (is_blank(rule[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < rule.size() && !is_blank(rule[at])) ++at;
    words.push_back({rule.substr(begin, at - begin), begin});
  }
  return words;
}

std::string listed_points() {
  std::string list;
  for (const PointName& point : point_names()) {
    if (!list.empty()) list += ", ";
    list += point.name;
  }
  return list;
}

// The unit decides between a time and an amount: no unit belongs to both.
bool read_after(std::string_view text, Rule& rule) {
  std::uint64_t value = 0;
  if (read_duration(text, value)) {
    rule.after_ns = value;
  } else if (read_amount(text, value)) {
    rule.after_bytes = value;
  } else {
    return false;
  }
  return true;
}

bool read_probability(std::string_view text, Rule& rule) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return false;
  // In this form NaN is refused as well, since every comparison with it is false.
  if (!(value > 0 && value <= 1)) return false;
  rule.probability = value;
  return true;
}

bool read_queue_pair(std::string_view text, Rule& rule) {
  std::uint64_t number = 0;
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
    if (failed != std::errc() || end != text.data() + text.size()) return false;
  } else if (!read_count(text, 0, number)) {
    return false;
  }
  // Queue pair numbers have 24 bits.
  if (number > 0xFFFFFF) return false;
  rule.queue_pair = static_cast<std::uint32_t>(number);
  return true;
}

// inet_pton(3) needs a string with a zero at its end, which a view does not have.
bool read_peer(std::string_view given, Rule& rule) {
  const std::string text(given);
  PeerAddress address{};
  std::array<std::uint8_t, 4> ipv4{};
  if (inet_pton(AF_INET, text.c_str(), ipv4.data()) == 1) {
    // IPv4 addresses are compared in their mapped form, which is also that of the peer's GID.
    address[10] = address[11] = 0xFF;
    std::ranges::copy(ipv4, address.begin() + 12);
  } else if (inet_pton(AF_INET6, text.c_str(), address.data()) != 1) {
    return false;
  }
  rule.peer = address;
  return true;
}

// client and server are what most programs call their ends.
bool read_side(std::string_view text, Rule& rule) {
  if (text == "active" || text == "client") rule.side = Side::active;
  if (text == "passive" || text == "server") rule.side = Side::passive;
  return rule.side != Side::none;
}

// The side that every occurrence of the point has; none: either one.
Side side_of(Point point) {
  switch (point) {
    case Point::resolve_address:
    case Point::resolve_route:
    case Point::connect:
      return Side::active;
    case Point::connect_request:
      return Side::passive;
    default:
      return Side::none;
  }
}

// The points at which a condition can be met.
enum class Scope : std::uint8_t {
  everywhere,
  repeated,     // that are passed more than once: all but events of the device
  queue_pairs,  // that belong to a queue pair
  peers,        // that have a peer
  sides,        // of connections of rdma_cm
  requests,     // that carry bytes
};

bool is_in(Scope scope, Point point) {
  const bool request = find_point(name_of(point))->kind == ActionKind::request_status;
  switch (scope) {
    case Scope::everywhere:
      return true;
    case Scope::repeated:
      return point != Point::device;
    case Scope::queue_pairs:
      return request || point == Point::post_send || point == Point::post_receive ||
             point == Point::modify_queue_pair || point == Point::pair ||
             point == Point::connection || point == Point::arrival || point == Point::completion;
    case Scope::peers:
      return request || find_point(name_of(point))->kind == ActionKind::failure;
    case Scope::sides:
      return is_in(Scope::peers, point) && point != Point::pair;
    case Scope::requests:
      return request || point == Point::connection;
  }
  return false;
}

struct Condition {
  std::string_view name;
  std::string_view allowed;
  bool (*read)(std::string_view value, Rule& rule);
  Scope scope;
};

constexpr std::string_view from_one = "a whole number from 1";

constexpr std::array conditions{
    Condition{"nth", from_one,
              [](std::string_view text, Rule& rule) { return read_count(text, 1, rule.nth); },
              Scope::repeated},
    Condition{"every", from_one,
              [](std::string_view text, Rule& rule) { return read_count(text, 1, rule.every); },
              Scope::repeated},
    Condition{"times", from_one,
              [](std::string_view text, Rule& rule) { return read_count(text, 1, rule.times); },
              Scope::repeated},
    Condition{"p", "a probability above 0 and at most 1, such as 0.01", read_probability,
              Scope::repeated},
    Condition{"after", "a duration in ns, us, ms or s, or an amount in B, KiB, MiB or GiB",
              read_after, Scope::everywhere},
    Condition{"qp", "a queue pair number from 0 to 0xffffff", read_queue_pair, Scope::queue_pairs},
    Condition{"peer", "a numeric IP address", read_peer, Scope::peers},
    Condition{"side", "active (client) or passive (server)", read_side, Scope::sides},
    Condition{"process", "the name of a program, without its folder",
              [](std::string_view text, Rule& rule) {
                rule.process = text;
                return !text.empty();
              },
              Scope::everywhere},
};

std::string listed_conditions() {
  std::string list;
  for (const Condition& condition : conditions) {
    if (!list.empty()) list += ", ";
    list += std::string(condition.name) + "=";
  }
  return list;
}

std::optional<Mistake> read_condition(const Word& word, Rule& rule) {
  const std::size_t equals = word.text.find('=');
  const std::string_view name = word.text.substr(0, equals);
  const auto found = std::ranges::find(conditions, name, &Condition::name);
  if (equals == std::string_view::npos || found == conditions.end()) {
    return Mistake{"must be one of the conditions " + listed_conditions(), word.offset};
  }
  if (!is_in(found->scope, rule.point)) {
    return Mistake{std::string(name) + "= can never be met at " + std::string(name_of(rule.point)),
                   word.offset};
  }
  if (!found->read(word.text.substr(equals + 1), rule)) {
    return Mistake{std::string(name) + "= must be " + std::string(found->allowed),
                   word.offset + equals + 1};
  }
  if (rule.side != Side::none && side_of(rule.point) != Side::none &&
      rule.side != side_of(rule.point)) {
    return Mistake{std::string(word.text) + " can never be met at " +
                       std::string(name_of(rule.point)) + ", which only the other side passes",
                   word.offset};
  }
  // The condition itself is allowed everywhere, but its amount form needs bytes to count.
  if (rule.after_bytes > 0 && !is_in(Scope::requests, rule.point)) {
    return Mistake{"only requests and connections carry bytes; give a duration, such as after=2s",
                   word.offset};
  }
  return std::nullopt;
}

// A duration and an amount are two conditions, though both are named after=.
bool is_same_condition(std::string_view a, std::string_view b) {
  const std::size_t equals = std::min(a.find('='), a.size());
  if (a.substr(0, equals) != b.substr(0, std::min(b.find('='), b.size()))) return false;
  if (a.substr(0, equals) != "after") return true;
  std::uint64_t bytes = 0;
  return read_amount(a.substr(equals + 1), bytes) == read_amount(b.substr(equals + 1), bytes);
}

std::optional<Mistake> read_conditions(std::span<const Word> words, Rule& rule) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (auto mistake = read_condition(words[i], rule)) return mistake;
    const bool twice = std::ranges::any_of(words.first(i), [&](const Word& earlier) {
      return is_same_condition(earlier.text, words[i].text);
    });
    if (!twice) continue;
    const std::string_view name = words[i].text.substr(0, words[i].text.find('='));
    return Mistake{std::string(name) + "= occurs twice", words[i].offset};
  }
  return std::nullopt;
}

std::optional<Mistake> read_rule(std::string_view text, std::span<const Word> words, Rule& rule) {
  if (words.size() < 3 || words[1].text != "at") {
    const std::size_t offset = words.size() < 2 ? text.size() : words[1].offset;
    return Mistake{
        "a rule is ACTION at POINT [CONDITION...], such as \"ENOMEM at create-qp nth=2\"", offset};
  }
  const PointName* point = find_point(words[2].text);
  if (!point) return Mistake{"must be one of the points " + listed_points(), words[2].offset};
  rule.point = point->point;
  if (auto mistake = read_action(words[0], *point, rule.action)) return mistake;
  return read_conditions(words.subspan(3), rule);
}

std::optional<Mistake> read_seed(std::span<const Word> words, Rules& rules) {
  std::uint64_t seed = 0;
  if (words.size() > 1) return Mistake{"seed= is a rule of its own", words[1].offset};
  if (!read_count(words[0].text.substr(5), 0, seed)) {
    return Mistake{"seed= must be a whole number", words[0].offset + 5};
  }
  rules.seed = seed;
  return std::nullopt;
}

// One rule, or an empty line, without its comment.
std::optional<Mistake> read_one(std::string_view text, Rules& rules) {
  const std::vector<Word> words = words_of(text);
  if (words.empty()) return std::nullopt;
  if (words[0].text.starts_with("seed=")) return read_seed(words, rules);
  Rule rule;
  if (auto mistake = read_rule(text, words, rule)) return mistake;
  // The text of the rule, which reports show, is kept without the blanks around it.
  const std::size_t begin = words.front().offset;
  const std::size_t end = words.back().offset + words.back().text.size();
  rule.text = text.substr(begin, end - begin);
  rules.list.push_back(std::move(rule));
  return std::nullopt;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Adds the rules of `text` to `rules`. Returns the error, or nothing. `included`: it is a file that
// a rule has named, and names no others.
std::string add_rules(std::string_view text, bool included, Rules& rules);

// A file cannot name another one, so files that name each other do not end in a recursion.
std::string add_file(const std::string& path, Rules& rules) {
  const auto content = read_file(path);
  if (!content) return "cannot read the file of rules " + path;
  const std::string wrong = add_rules(*content, true, rules);
  return wrong.empty() ? wrong : path + ": " + wrong;
}

std::string add_rule(std::string_view text, bool included, Rules& rules) {
  const std::string_view words = trimmed(text);
  if (words.starts_with('@') && !included) return add_file(std::string(words.substr(1)), rules);
  const auto mistake = read_one(text, rules);
  return mistake ? explain(*mistake, text) : std::string();
}

std::string add_rules(std::string_view text, bool included, Rules& rules) {
  while (!text.empty()) {
    const std::size_t line_end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, line_end);
    // The comment is removed before the line is divided, so that it may contain semicolons.
    line = line.substr(0, line.find('#'));
    text.remove_prefix(std::min(line_end + 1, text.size()));
    while (!line.empty()) {
      const std::size_t end = std::min(line.find(';'), line.size());
      std::string wrong = add_rule(line.substr(0, end), included, rules);
      if (!wrong.empty()) return wrong;
      line.remove_prefix(std::min(end + 1, line.size()));
    }
  }
  return {};
}

}  // namespace

Result<Rules, std::string> parse(std::string_view text) {
  Rules rules;
  std::string wrong = add_rules(text, false, rules);
  if (!wrong.empty()) return wrong;
  return rules;
}

}  // namespace weft::faults
