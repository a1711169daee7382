// Connecting and accepting without waiting.
#pragma once

#include <memory>
#include <optional>

#include "weft/connection/connection.hpp"
#include "weft/connection/listener.hpp"
#include "weft/connection/options.hpp"
#include "weft/export.hpp"

namespace weft::connection {

// A connection that is being made. Destroying it gives it up.
class Attempt {
 public:
  // Begins to ask for one. A host's name is looked up during the call, and may take its time;
  // numeric addresses take none. Throws Error.
  WEFT_API explicit Attempt(const Address& peer, const Options& options = {},
                            const Greeting& greeting = {});
  // The same, and accepting, for those who have made buffers and posted receives before.
  WEFT_API explicit Attempt(Prepared&& prepared, const Greeting& greeting = {});
  WEFT_API explicit Attempt(Request&& request, const Greeting& greeting = {});
  WEFT_API Attempt(Attempt&&) noexcept;
  WEFT_API Attempt& operator=(Attempt&&) noexcept;
  WEFT_API ~Attempt();

  // Readable while take() may have something to do; -1 once the connection was taken.
  [[nodiscard]] WEFT_API int fd() const;
  // The connection, as soon as there is one; nothing before that, and after it was taken. Throws
  // Error, or Rejected, where there will be none.
  [[nodiscard]] WEFT_API std::optional<Connection> take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::connection
