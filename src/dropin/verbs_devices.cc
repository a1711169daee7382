// Functions of libibverbs: devices, contexts and queries.
#include <infiniband/verbs.h>

#include <cstdlib>

#include "check/table.h"
#include "dropin/export.h"
#include "dropin/provider_table.h"
#include "provider/embedded.h"

// verbs.h replaces some of the exported functions by macros and inline functions.
#undef ibv_get_device_list
#undef ibv_query_port

namespace weft::dropin {

const provider::Table& table() {
  return check::with_checks(provider::embedded());
}

namespace {

// Before main(), so that the checks of the exit come after the exit handlers of the program.
[[gnu::constructor]] void start_checks() {
  if (secure_getenv("WEFT_CHECK")) (void)table();
}

}  // namespace
}  // namespace weft::dropin

using weft::dropin::table;

// The program frees the array. Contexts that it has opened stay valid after that, but devices that
// it has not opened do not (ibv_get_device_list(3)).
WEFT_EXPORT ibv_device** ibv_get_device_list(int* count) {
  return table().get_device_list(count);
}

WEFT_EXPORT void ibv_free_device_list(ibv_device** list) {
  table().free_device_list(list);
}

WEFT_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return table().get_device_name(device);
}

WEFT_EXPORT int ibv_get_device_index(ibv_device* device) {
  return table().get_device_index(device);
}

WEFT_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  return table().get_device_guid(device);
}

WEFT_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return table().open_device(device);
}

// The program destroys the objects of the context before: closing it does not release all of them
// (ibv_close_device(3)).
WEFT_EXPORT int ibv_close_device(ibv_context* context) {
  return table().close_device(context);
}

// Returns the number of characters, or -1. A text that fills the buffer has no terminating zero.
WEFT_EXPORT int ibv_read_sysfs_file(const char* directory, const char* file, char* text,
                                    size_t bytes) {
  return table().read_sysfs_file(directory, file, text, bytes);
}

// Blocks, unless the program has made the descriptor `async_fd` non-blocking.
WEFT_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return table().get_async_event(context, event);
}

// The functions that destroy an object wait until its events are acknowledged
// (ibv_get_async_event(3)).
WEFT_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  table().ack_async_event(event);
}

WEFT_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  return table().query_device(context, attributes);
}

// The inline function of verbs.h calls this symbol where a context has no function of its own for
// it, and programs of old releases always do. Their structure ends before `port_cap_flags2`.
WEFT_EXPORT int ibv_query_port(ibv_context* context, uint8_t port,
                               _compat_ibv_port_attr* attributes) {
  return table().query_port(context, port, attributes);
}

// The queries of the GID table and the P_Key table return -1, not an errno value
// (ibv_query_gid(3)).
WEFT_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  return table().query_gid(context, port, index, gid);
}

// The inline functions of verbs.h pass the size of their ibv_gid_entry, so that it can grow.
WEFT_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                  ibv_gid_entry* entry, uint32_t flags, size_t entry_bytes) {
  return table().query_gid_ex(context, port, index, entry, flags, entry_bytes);
}

// Returns the number of entries, or a negative errno value (ibv_query_gid_table(3)).
WEFT_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                         size_t max_entries, uint32_t flags, size_t entry_bytes) {
  return table().query_gid_table(context, entries, max_entries, flags, entry_bytes);
}

WEFT_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  return table().query_pkey(context, port, index, pkey);
}

WEFT_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  return table().get_pkey_index(context, port, pkey);
}

// Adapters need this before fork(2), because copy-on-write would give pinned pages to the wrong
// process. No memory is pinned here.
WEFT_EXPORT int ibv_fork_init() {
  return table().fork_init();
}

WEFT_EXPORT ibv_fork_status ibv_is_fork_initialized() {
  return table().is_fork_initialized();
}

// Only for drivers that pin memory themselves, which this device does not.
WEFT_EXPORT int ibv_dontfork_range(void* /*base*/, size_t /*bytes*/) {
  return 0;
}
WEFT_EXPORT int ibv_dofork_range(void* /*base*/, size_t /*bytes*/) {
  return 0;
}
