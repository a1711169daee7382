// Attributes of an id in terms of verbs: rdma_init_qp_attr(3), the path record of a route, address
// vectors. All functions are called with the lock of the id held.
#pragma once

#include <infiniband/verbs.h>

#include "cm/id_state.h"

namespace weft::cm {

// Fills in the path record of a resolved route.
void set_path(IdState& state);

// rdma_init_qp_attr(3): what ibv_modify_qp(3) needs to take the queue pair of this id to
// `attributes.qp_state`. 0 or an errno value.
int qp_attributes(IdState& state, ibv_qp_attr& attributes, int& mask);

// The address vector of packets from this id to `destination`.
void set_address_vector(const IdState& state, ibv_ah_attr& vector, const ibv_gid& destination);

}  // namespace weft::cm
