// Domains of extended reliable connections (XRC), on devices that support them.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "weft/export.hpp"
#include "weft/handle.hpp"

namespace weft::verbs {

namespace detail {
struct XrcDomainState;
}

// An XRC domain, ibv_open_xrcd(3); Context::open_xrc_domain() makes it. Thread-safe. Its shared
// receive queues and queue pairs have no C++ classes: create them from raw() with
// ibv_create_srq_ex(3) and ibv_create_qp_ex(3), and destroy them first.
class XrcDomain {
 public:
  XrcDomain(XrcDomain&&) noexcept = default;
  XrcDomain& operator=(XrcDomain&&) noexcept = default;
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_xrcd* raw() const { return raw_; }

 private:
  friend class Context;
  explicit XrcDomain(std::shared_ptr<detail::XrcDomainState> state);

  weft::detail::Held<std::shared_ptr<detail::XrcDomainState>, "weft::verbs::XrcDomain"> state_;
  weft::detail::Held<ibv_xrcd*, "weft::verbs::XrcDomain"> raw_;
};

}  // namespace weft::verbs
