// What is checked when the program ends.
#pragma once

namespace weft::check {

// Reports objects that are left, and ends the process with the exit status that the user wants for
// a program with findings. Called by exit(3), after the program's own functions.
void check_exit();

}  // namespace weft::check
