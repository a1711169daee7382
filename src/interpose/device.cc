// Uses the device of the drop-in libibverbs.so.1, so that a process has only one.
#include "interpose/refusal.h"
#include "provider/table.h"

extern "C" const weft::provider::Table* weft_provider_table();
extern "C" void weft_count_refusal(weft::provider::Refusal why);

namespace weft::provider {

const Table& embedded();
const Table& embedded() {
  return *weft_provider_table();
}

}  // namespace weft::provider

namespace weft::interpose {

void count_refusal(Refusal why) {
  weft_count_refusal(why);
}

}  // namespace weft::interpose
