"""Exceptions. Each is an OSError with `errno` and the library's sentence in `strerror`."""

from __future__ import annotations

import errno


class Error(OSError):
    """A call of the library has failed. `errno` is its error number, `strerror` its sentence, which
    names the object and says what to do."""


class Timeout(Error, TimeoutError):
    """The timeout of a call has passed, connecting took too long, or the peer is silent."""


class Elapsed(Timeout):
    """The timeout of a call has passed, and nothing has failed: the call can be repeated."""


class Refused(Error, ConnectionRefusedError):
    """The peer has refused the connection, or nothing listens at its address."""


class Lost(Error, ConnectionResetError):
    """The connection was lost: the peer has ended it at once, or does not exist any more."""


class NotConnected(Error, ConnectionError):
    """The connection is not established, or has ended."""


class WouldBlock(Error, BlockingIOError):
    """A queue is full, and the call does not wait."""


_CLASSES = {errno.ETIMEDOUT: Timeout, errno.ECONNREFUSED: Refused, errno.ECONNRESET: Lost,
            errno.EPIPE: Lost, errno.ENOTCONN: NotConnected, errno.EAGAIN: WouldBlock}


def error_of(number: int, text: str) -> Error:
    """The exception of an error number."""
    return _CLASSES.get(number, Error)(number, text)


def timeout_error(text: str) -> Elapsed:
    """The exception of a call whose timeout has passed."""
    return Elapsed(errno.ETIMEDOUT, text)
