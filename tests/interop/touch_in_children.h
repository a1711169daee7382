// A library of the program `shared_heap`, with a handler of fork(2).
#pragma once

// Memory in which the handler in the child sets the first byte to 9; null: none.
[[gnu::visibility("default")]] extern unsigned char* touched_in_children;
