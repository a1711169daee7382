// fork(2) in a program that is checked.
#pragma once

namespace weft::check {

// Registers what is to be done at each fork(2) from now on: a check in the parent, and a checker
// that works in the child.
void watch_forks();

}  // namespace weft::check
