// Attributes of an id in terms of verbs: rdma_init_qp_attr(3), the path record of a route, address
// vectors. All functions are called with the lock of the id held.
#pragma once

#include <infiniband/verbs.h>

#include "cm/id_state.h"
#include "cm/port_space.h"

namespace weft::cm {

// Fills in the path record of a resolved route.
void set_path(IdState& state);

// rdma_init_qp_attr(3): what ibv_modify_qp(3) needs to take the queue pair of this id to
// `attributes.qp_state`. 0 or an errno value.
int qp_attributes(IdState& state, ibv_qp_attr& attributes, int& mask);

// What ibv_query_qp(3) reports of a queue pair whose connection rdma_cm makes, but for the number
// of the peer's, which iWARP does not know. A queue pair that is not the id's is for the program to
// take to RTS, with attributes of its own.
[[nodiscard]] ibv_qp_attr connection_attributes(IdState& state, const ConnectParameters& parameters,
                                                int& mask);

// The address vector of packets from this id to `destination`.
void set_address_vector(const IdState& state, ibv_ah_attr& vector, const ibv_gid& destination);

}  // namespace weft::cm
