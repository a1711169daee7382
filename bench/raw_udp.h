// What raw UDP sends between the two processes of run_pair(): the limit of UD queue pairs.
#pragma once

#include <cstddef>

namespace weft::bench {

// Datagrams of `bytes` bytes that one process sends per second, 32 by each system call, while the
// other one reads them in the same way. Those that find its buffer full are lost, but counted.
double raw_datagram_rate(std::size_t bytes, int datagrams);

}  // namespace weft::bench
