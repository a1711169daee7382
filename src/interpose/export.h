// How a function of this library stands before the C library's of the same name.
#pragma once

#define WEFT_INTERPOSED extern "C" __attribute__((visibility("default")))
