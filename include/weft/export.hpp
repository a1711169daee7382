// What the shared library shows.
#pragma once

#define WEFT_API __attribute__((visibility("default")))
