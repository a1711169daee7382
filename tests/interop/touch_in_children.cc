#include "interop/touch_in_children.h"

#include <pthread.h>

unsigned char* touched_in_children = nullptr;

namespace {

// Runs before the constructors of the program and of the libraries that are loaded before it.
[[gnu::constructor]] void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] {
    if (touched_in_children) touched_in_children[0] = 9;
  });
}

}  // namespace
