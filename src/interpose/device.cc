// Uses the device of the drop-in libibverbs.so.1, so that a process has only one.
#include "provider/table.h"

extern "C" const weft::provider::Table* weft_provider_table();

namespace weft::provider {

const Table& embedded();
const Table& embedded() {
  return *weft_provider_table();
}

}  // namespace weft::provider
