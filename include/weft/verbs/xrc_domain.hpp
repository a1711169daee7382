// Extended reliable connections, where a device has them.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "weft/export.hpp"

namespace weft::verbs {

namespace detail {
struct XrcDomainState;
}

// ibv_open_xrcd(3); made by Context::open_xrc_domain(). Thread-safe. Its shared receive queues and
// queue pairs have no C++ form: ibv_create_srq_ex(3) and ibv_create_qp_ex(3) make them from raw(),
// and they must be destroyed before it.
class XrcDomain {
 public:
  XrcDomain(XrcDomain&&) noexcept = default;
  XrcDomain& operator=(XrcDomain&&) noexcept = default;
  [[nodiscard]] ibv_xrcd* raw() const { return raw_; }

 private:
  friend class Context;
  explicit XrcDomain(std::shared_ptr<detail::XrcDomainState> state);

  std::shared_ptr<detail::XrcDomainState> state_;
  ibv_xrcd* raw_;
};

}  // namespace weft::verbs
