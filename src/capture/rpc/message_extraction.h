// Writes each Send, Write, Read response and Immediate Data message to a file when it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "capture/rpc/extraction.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/byte_map.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

class MessageExtraction final : public TrafficSink {
 public:
  // Selects what is extracted.
  struct Wanted {
    std::function<bool(ConnectionId)> connection;
    // Decides about a message that has ended: its connection, side, kind, start, size, address and
    // keys are set.
    std::function<bool(const Operation&)> message;
  };

  // `directory` must outlive this object. The files are
  // messages/<connection>/<number>-<side>-<kind>.
  MessageExtraction(ExtractionDirectory& directory, Wanted wanted)
      : directory_(directory), wanted_(std::move(wanted)), budget_(budget_bytes) {}

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_immediate(const Origin& origin, const ImmediateMessage& message) override;
  void on_close(ConnectionId connection) override;
  void finish();

 private:
  // Limits for all open messages. Bytes above the budget are dropped, and the file is marked as
  // incomplete.
  static constexpr std::size_t budget_bytes = 512 * 1024 * 1024;
  static constexpr std::size_t max_open = 65'536;

  enum class Kind : std::uint8_t { send, write, read, immediate };
  using Key = std::tuple<ConnectionId, Side, Kind, std::uint64_t>;
  struct Open {
    Open(Budget& budget, std::uint64_t begun) : number(begun), bytes(budget) {}
    std::uint64_t number = 0;  // by age
    ByteMap bytes;
    std::uint64_t size = 0;
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::optional<std::uint32_t> immediate;
    std::uint32_t invalidated_key = 0;
    bool ended = false;
    Stamp first;
    Stamp last;
  };

  Open& open(const Key& key, const Stamp& stamp);
  static void place(Open& open, std::uint64_t offset, Bytes bytes, std::uint64_t missing_bytes,
                    bool lost);
  // A side sends one message after the other, so a new message ends the one before.
  void end_others(const Key& key);
  void end(const Key& key);
  [[nodiscard]] bool wanted(const Key& key, const Open& open) const;
  void write(const Key& key, const Open& open);

  ExtractionDirectory& directory_;
  Wanted wanted_;
  Budget budget_;
  std::map<Key, Open> open_;
  std::map<std::uint64_t, Key> by_age_;  // of the open messages
  std::uint64_t begun_ = 0;
  std::uint64_t numbered_ = 0;
};

// Writes the messages of RPCs to rpc/<connection>/<XID>.<number>.call and .reply.
class RpcExtraction {
 public:
  explicit RpcExtraction(ExtractionDirectory& directory) : directory_(directory) {}
  void add(const Rpc& rpc);

 private:
  void add(const Rpc& rpc, const RpcMessage& message, const char* kind);

  ExtractionDirectory& directory_;
  std::uint64_t numbered_ = 0;
};

}  // namespace weft::capture
