// Messages that the application sends before the connection is established, if it has asked for
// that by Options::queue_while_connecting.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "message/record.h"

namespace weft::message::detail {

class EarlySends {
 public:
  explicit EarlySends(bool enabled) : open_(enabled) {}

  // Whether messages may be added. The owner checks the limits.
  [[nodiscard]] bool open() const { return open_; }
  // disconnect_after_sending() was called: the connection ends when these messages are sent.
  void close_after_them() {
    open_ = false;
    closes_ = true;
  }
  [[nodiscard]] bool closes() const { return closes_; }

  void add(std::shared_ptr<Record> record) {
    bytes_ += record->bytes;
    records_.push_back(std::move(record));
  }
  // The next one, in order; null if there is none.
  [[nodiscard]] std::shared_ptr<Record> take() {
    if (records_.empty()) return nullptr;
    auto record = std::move(records_.front());
    records_.pop_front();
    bytes_ -= record->bytes;
    return record;
  }
  [[nodiscard]] std::size_t messages() const { return records_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  bool open_;
  bool closes_ = false;
  std::deque<std::shared_ptr<Record>> records_;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft::message::detail
