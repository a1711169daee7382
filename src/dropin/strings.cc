// Names of values: ibv_wc_status_str(3) and similar functions.
#include <infiniband/verbs.h>

#include "dropin/export.h"
#include "provider/names.h"
#include "provider/sysfs_tree.h"

using weft::provider::name_of;

// The texts are constants, which the program must not free.
WEFT_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  return name_of(type);
}

WEFT_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  return name_of(state);
}

WEFT_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  return name_of(event);
}

WEFT_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  return name_of(status);
}

WEFT_EXPORT const char* ibv_get_sysfs_path() {
  return weft::provider::sysfs_folder().c_str();
}
