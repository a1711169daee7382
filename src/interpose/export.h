// Exports a function that replaces the libc function of the same name (LD_PRELOAD).
#pragma once

#define WEFT_INTERPOSED extern "C" __attribute__((visibility("default")))
