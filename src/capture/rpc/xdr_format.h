// Skips XDR items by a short description of their types. Most operations of NFS version 4 have
// contents that no report shows, but their length must be known to find the next operation.
//
//   4 8      four or eight bytes          o    opaque data or a string
//   S K      16 bytes: stateid, session   V    8 bytes: a verifier
//   b        a bitmap                     a    attributes: a bitmap and opaque data
//   c        change information           [x]  any number of x
//   ?(x)     x if a boolean is true       {1:x|2:y|*:z}  by the value of a discriminator
#pragma once

#include <string_view>

#include "wire/xdr.h"

namespace weft::capture {

// Sets the error bad_value if a discriminator has no branch.
void skip_items(wire::XdrReader& in, std::string_view format);

}  // namespace weft::capture
