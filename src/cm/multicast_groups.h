// The multicast groups that an id of the UDP port space has joined: rdma_join_multicast(3).
#pragma once

#include <sys/socket.h>

#include <vector>

#include "cm/id_state.h"

namespace weft::cm {

class MulticastGroups {
 public:
  // `state` must outlive this object.
  explicit MulticastGroups(IdState& state) : state_(state) {}

  // Joins, and pushes MULTICAST_JOIN or MULTICAST_ERROR with `context`. `send_only`: the queue pair
  // receives nothing from the group. 0 or EINVAL.
  int join(const sockaddr_storage& address, bool send_only, void* context);
  // 0, EADDRNOTAVAIL for a group that was not joined, or another errno value.
  int leave(const sockaddr_storage& address);

 private:
  struct Group {
    sockaddr_storage address;
    ibv_gid gid;
    bool attached;  // the queue pair receives from it
  };

  IdState& state_;
  std::vector<Group> groups_;
};

}  // namespace weft::cm
