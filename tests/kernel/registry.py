"""The list of kernel tests. It is apart from the interoperability tests' list, which the shared
modules of tests/interop fill when they are imported."""

from cases import Case

CASES = {}


def add(name, run, *, timeout_s):
    """Registers a test: `run` is called with a Stage."""
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    CASES[name] = Case(name, run, timeout_s, long=False, sanitized=False)
