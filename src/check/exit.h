// What is checked when the program ends.
#pragma once

namespace weft::check {

// Reports objects that are left, if there are checks, and ends the process with the exit status
// that the user wants for a program with findings. Called by exit(3), after the program's own
// functions.
void check_exit();
// Has exit(3) call it, behind what registers later. Again does nothing.
void check_at_exit();

}  // namespace weft::check
