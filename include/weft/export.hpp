// Marks what the shared library exports.
#pragma once

#define WEFT_API __attribute__((visibility("default")))
