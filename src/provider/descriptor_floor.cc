#include "provider/descriptor_floor.h"

#include "device/descriptor_floor.h"

namespace weft::provider {

void set_descriptor_floor(int first) {
  device::sys::set_descriptor_floor(first);
}

}  // namespace weft::provider
