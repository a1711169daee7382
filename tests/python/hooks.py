"""Code of a test that runs between a function of the library and its caller in the package."""

import contextlib

from weft import _library


@contextlib.contextmanager
def hook(name, after):
    """Calls `after` whenever that function of the library has returned, before its caller goes
    on."""
    function = getattr(_library.library, "weft_" + name)

    def passed(result, *_):
        after()
        return result

    function.errcheck = passed
    try:
        yield
    finally:
        del function.errcheck


@contextlib.contextmanager
def failing(name, number):
    """That function of the library does its work, and then returns the error number."""
    function = getattr(_library.library, "weft_" + name)
    function.errcheck = lambda *_: -number
    try:
        yield
    finally:
        del function.errcheck
