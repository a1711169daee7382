// Connecting and accepting without blocking, for programs with an event loop of their own.
#pragma once

#include <memory>
#include <optional>

#include "weft/connection/connection.hpp"
#include "weft/connection/listener.hpp"
#include "weft/connection/options.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"

namespace weft::connection {

// A connection that is being established. Destroying it abandons the attempt. For one thread at a
// time.
class Attempt {
 public:
  // Starts to connect. The name of a host is looked up in a thread of its own, and take() throws
  // what comes of it; a numeric address needs no lookup. Throws Error.
  WEFT_API explicit Attempt(const Address& peer, const Options& options = {},
                            const Greeting& greeting = {});
  // Starts to connect or to accept with an endpoint that has its buffers and receives already.
  WEFT_API explicit Attempt(Prepared&& prepared, const Greeting& greeting = {});
  WEFT_API explicit Attempt(Request&& request, const Greeting& greeting = {});
  WEFT_API Attempt(Attempt&&) noexcept;
  WEFT_API Attempt& operator=(Attempt&&) noexcept;
  WEFT_API ~Attempt();

  // A descriptor that is readable while take() may make progress; -1 after the connection was
  // taken.
  [[nodiscard]] WEFT_API int fd() const;
  // Continues without blocking. Returns the connection once it is established, and nothing before
  // that and after it was taken. Throws Error, or Rejected, if the attempt has failed.
  [[nodiscard]] WEFT_API std::optional<Connection> take();

 private:
  struct State;
  weft::detail::Held<std::unique_ptr<State>, "weft::connection::Attempt"> state_;
};

}  // namespace weft::connection
