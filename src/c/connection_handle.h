// What the files of the C interface of connections share: connections and buffers.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "weft/c/connection.h"
#include "weft/connection.hpp"

// One object for all phases: a C program keeps one pointer from the first call to the last.
struct weft_connection {
  // Empty after a failure to establish, and after a rejection.
  std::variant<std::monostate, weft::connection::Prepared, weft::connection::Request,
               weft::connection::Attempt, weft::connection::Connection>
      state;

  // Throws Error.
  [[nodiscard]] weft::connection::Connection& established() {
    if (auto* connection = std::get_if<weft::connection::Connection>(&state)) return *connection;
    throw weft::Error(ENOTCONN,
                      "the connection is not established: call weft_connection_establish()");
  }
  // Throws Error.
  [[nodiscard]] weft::connection::Attempt& attempt() {
    if (auto* attempt = std::get_if<weft::connection::Attempt>(&state)) return *attempt;
    throw weft::Error(ENOTCONN, "the connection is not being established");
  }
  // The phases with buffers, receives and addresses. Throws Error.
  [[nodiscard]] weft::connection::ConnectionEnd& endpoint() {
    if (auto* prepared = std::get_if<weft::connection::Prepared>(&state)) return *prepared;
    if (auto* request = std::get_if<weft::connection::Request>(&state)) return *request;
    return established();
  }
};

struct weft_buffer {
  explicit weft_buffer(weft::connection::Buffer&& made, std::shared_ptr<const void> owned = nullptr)
      : memory(std::move(owned)), buffer(std::move(made)) {}

  // Throws std::out_of_range for a part that is not within the buffer.
  [[nodiscard]] weft::connection::LocalSlice slice(std::size_t offset, std::size_t bytes) const {
    return buffer.MemoryRegion::slice(offset, bytes);
  }
  // The same, which keeps the region and its memory.
  [[nodiscard]] weft::connection::KeptSlice keep(std::size_t offset, std::size_t bytes) const {
    return buffer.MemoryRegion::keep(offset, bytes).with(memory);
  }

  std::shared_ptr<const void> memory;  // of weft_buffer_register_owned()
  weft::connection::Buffer buffer;     // destroyed first
};
