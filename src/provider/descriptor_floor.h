// See device/descriptor_floor.h.
#pragma once

namespace weft::provider {

void set_descriptor_floor(int first);

}  // namespace weft::provider
