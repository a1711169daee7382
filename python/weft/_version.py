"""The version of the package, which is that of the shared library."""

VERSION = "0.1.0"
# The version of the shared library's interface, as in the name of its file.
SOVERSION = "0.1"
