// The kernel's TCP socket behind a socket of the program. It knows which options exist and which
// values they take, holds the address, and listens; a stream that is connected does not need it.
#pragma once

#include <utility>

#include "interpose/descriptor.h"
#include "interpose/inherited_options.h"

namespace weft::interpose {

// Not thread-safe.
class KernelSocket {
 public:
  explicit KernelSocket(InheritedOptions options)
      : family_(options.family), options_(std::move(options)) {}

  [[nodiscard]] int family() const { return family_; }
  // Makes the socket again, with the options that were set, if it was closed. -1 with errno.
  [[nodiscard]] int open();
  void adopt(Descriptor socket) {
    borrowed_ = -1;
    socket_ = std::move(socket);
  }
  // The program's own descriptor is this socket, until adopt() or give_back().
  void borrow(int fd) { borrowed_ = fd; }
  void give_back() { borrowed_ = -1; }
  [[nodiscard]] bool is_borrowed() const { return borrowed_ >= 0; }
  void close() { socket_.reset(); }
  [[nodiscard]] bool is_open() const { return fd() >= 0; }
  [[nodiscard]] int fd() const { return is_borrowed() ? borrowed_ : socket_.get(); }

  // What the program has set so far. record() only notes an option that was set already.
  [[nodiscard]] const InheritedOptions& options() const { return options_; }
  void record(SocketOption option) { options_.set(std::move(option)); }

 private:
  const int family_;
  InheritedOptions options_;
  Descriptor socket_;
  int borrowed_ = -1;
};

}  // namespace weft::interpose
