// LinkEnd: how and why a connection has ended, as its application is to see it.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "weft/message/connection.hpp"

namespace weft::message::detail {

class LinkEnd {
 public:
  [[nodiscard]] explicit operator bool() const { return ending_.has_value(); }
  // `text` is empty where the `error` callback is not called.
  void set(Ending ending, std::string text, ErrorDetail detail = {}) {
    ending_ = ending;
    text_ = std::move(text);
    detail_ = std::move(detail);
  }
  // The cause has turned out to be another one than set() was given.
  void correct(Ending ending) { ending_ = ending; }
  // The peer has rejected the request to connect; set() follows.
  void set_rejected(Rejected rejected) { rejected_.emplace(std::move(rejected)); }

  // Only after set().
  [[nodiscard]] const Ending& ending() const { return *ending_; }
  [[nodiscard]] int error_number() const { return ending_->error_number; }
  [[nodiscard]] const std::string& text() const { return text_; }
  // The argument of the `error` callback: Rejected, or an Error. Calls `report` with it once, and
  // never if there is no error.
  template <typename Report>
  void report_error(const Report& report) {
    if (std::exchange(reported_, true) || text_.empty()) return;
    if (rejected_) {
      report(*rejected_);
    } else {
      report(Error(error_number(), text_, detail_));
    }
  }
  // Throws the reason why there is no connection.
  [[noreturn]] void raise() const {
    if (rejected_) throw *rejected_;
    if (ending_) throw Error(error_number(), text_, detail_);
    throw Error(ECANCELED, "there is no connection");
  }

 private:
  std::optional<Ending> ending_;
  std::string text_;
  ErrorDetail detail_;
  std::optional<Rejected> rejected_;
  bool reported_ = false;
};

}  // namespace weft::message::detail
