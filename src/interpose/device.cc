// Uses the device of the drop-in libibverbs.so.1, so that a process has only one.
#include "interpose/device.h"

#include "base/own_descriptors.h"
#include "interpose/descriptor.h"
#include "interpose/refusal.h"
#include "provider/table.h"
#include "stream/stream_thread.h"

extern "C" const weft::provider::Table* weft_provider_table();
extern "C" void weft_count_refusal(weft::provider::Refusal why);
extern "C" weft::own_descriptors::Account* weft_keep_own_descriptors(int first);
extern "C" int weft_serve_host(rdma_cm_id* listener, bool serves);
extern "C" void weft_start_thread();

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

void start_threads() {
  (void)weft::stream::detail::StreamThread::instance();
  weft_start_thread();
}

namespace {

// The device is in another library, with a copy of its own of what both libraries use.
[[gnu::constructor]] void keep_own_descriptors() {
  const int first = least_high_descriptor();
  own_descriptors::keep_account(weft_keep_own_descriptors(first), first);
}

}  // namespace

}  // namespace weft::interpose
