"""RDMA on any Linux machine: connections, messages, streams, and the analysis of captures.

`weft.connection`, `weft.message` and `weft.stream` are the layers of the library; `weft.aio` has
them for asyncio; `weft.capture` reads captures by the program `weft`. The device is embedded: no
hardware, privileges or kernel module are needed.

`weft.capture` works without the shared library, which is loaded by the other modules.
"""

from ._version import VERSION
from .errors import Error, Lost, NotConnected, Refused, Timeout, WouldBlock

__version__ = VERSION
__all__ = ["Error", "Lost", "NotConnected", "Refused", "Timeout", "WouldBlock", "__version__"]


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    """Loads a module of the package when it is first used."""
    import importlib
    if name in ("aio", "capture", "connection", "message", "stream"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
