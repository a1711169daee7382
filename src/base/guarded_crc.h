// A guarded copy that computes the checksum of what it copies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// As guarded_load() of guarded_memory.h, and adds the bytes that were copied to the state of a
// CRC32C (see crc32c_state.h). They are read once, where the processor has VPCLMULQDQ with AVX2 or
// AVX-512. False: the state is of no use any more.
[[nodiscard]] bool guarded_load(void* to, const void* from, std::size_t bytes,
                                std::uint32_t& crc_state);

}  // namespace weft
