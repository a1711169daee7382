"""The shared libraries export their own names, and nothing of the C++ library's.

Run with the paths of the libraries.
"""

import re
import subprocess
import sys
import unittest

LIBRARIES = []
# Of the public classes, where they have tables of their own.
OWN = re.compile(r"(weft::|weft_|(typeinfo|typeinfo name|vtable|VTT|guard variable) for weft::|"
                 r"construction vtable for |(non-virtual|virtual) thunk to weft::)")
# One of each kind: a class, its exceptions and their types, a function of the C interface.
NEEDED = {
    "libweft.so": ["weft::Error::Error(int, ", "typeinfo for weft::Error", "vtable for weft::Error",
                   "typeinfo for weft::connection::Rejected", "typeinfo for weft::stream::Rejected",
                   "typeinfo for weft::message::Rejected", "weft::verbs::open_device(",
                   "weft::message::EventLoop::run()", "weft_stream_connect"],
    "libweft-capture.so": ["weft::capture::"],
}


def exported(path):
    said = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", path], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=120).stdout
    return [line.split(maxsplit=2)[2] for line in said.splitlines()]


class Symbols(unittest.TestCase):
    def test_only_own_names_are_exported(self):
        for path in LIBRARIES:
            self.assertEqual([name for name in exported(path) if not OWN.match(name)], [], path)

    def test_the_interfaces_are_exported(self):
        for path in LIBRARIES:
            names = exported(path)
            for library, needed in NEEDED.items():
                if library not in path.replace(".so.", ".so"):
                    continue
                missing = [start for start in needed
                           if not any(name.startswith(start) for name in names)]
                self.assertEqual(missing, [], path)


if __name__ == "__main__":
    LIBRARIES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
