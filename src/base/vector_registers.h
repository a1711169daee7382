// For after ISA-L: it returns with the upper halves of the vector registers in use.
#pragma once

namespace weft {

void tidy_vector_registers();

}  // namespace weft
