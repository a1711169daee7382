// fi_fabric(3) and fi_domain(3): what endpoints share. That is little: there is no memory to
// register, and every transfer completes within its call.
#pragma once

#include <rdma/fi_domain.h>

#include "fabric/requests.h"
#include "fabric/users.h"

namespace weft::fabric {

class Fabric final : public fid_fabric {
 public:
  using Handle = fid_fabric;
  explicit Fabric(void* context);

  [[nodiscard]] Users& users() { return users_; }
  [[nodiscard]] Requests& requests() { return requests_; }

 private:
  Users users_;
  Requests requests_;
};

class Domain final : public fid_domain {
 public:
  using Handle = fid_domain;
  Domain(Fabric& fabric, void* context);

  [[nodiscard]] Fabric& fabric() { return fabric_; }
  [[nodiscard]] Users& users() { return users_; }

 private:
  Fabric& fabric_;
  const Use use_;
  Users users_;
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);

}  // namespace weft::fabric
