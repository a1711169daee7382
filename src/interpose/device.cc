// Uses the device of the drop-in libibverbs.so.1, so that a process has only one.
#include "interpose/device.h"

#include "interpose/descriptor.h"
#include "interpose/refusal.h"
#include "provider/table.h"
#include "stream/ring_memory.h"

extern "C" const weft::provider::Table* weft_provider_table();
extern "C" void weft_count_refusal(weft::provider::Refusal why);
extern "C" void weft_set_descriptor_floor(int first);
extern "C" int weft_serve_host(rdma_cm_id* listener, bool serves);

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

void serve_host(const stream::Listener& listener, bool serves) {
  (void)weft_serve_host(listener.id().raw(), serves);
}

namespace {

[[gnu::constructor]] void keep_low_numbers_free() {
  weft_set_descriptor_floor(least_high_descriptor());
  stream::detail::set_ring_file_floor(least_high_descriptor());
}

}  // namespace

}  // namespace weft::interpose
