// Clears the upper halves of the vector registers, which ISA-L leaves in use. Call it after ISA-L.
#pragma once

namespace weft {

void tidy_vector_registers();

}  // namespace weft
