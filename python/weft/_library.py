"""The functions of libweft.so, its structures, and the way from error numbers to exceptions."""

from __future__ import annotations

import ctypes
import operator
import time
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t,
                    c_ssize_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)
from typing import Any, Callable, Optional, Tuple

from ._handle import Handle
from ._version import SOVERSION
from .errors import Error, error_of

FILE = f"libweft.so.{SOVERSION}"

try:
    library = ctypes.CDLL(FILE)
except OSError as failure:
    raise ImportError(f"the shared library of Weft cannot be loaded: {failure}. Install Debian's "
                      "package of it, or name its folder in LD_LIBRARY_PATH") from failure

# A call that blocks returns to Python this often, so that signal handlers run: that of Ctrl-C.
_SLICE_MS = 200


class _Checked(Structure):
    """A structure whose numbers fit into its members: ctypes alone would cut them."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        for field, value in zip(self._fields_, values):
            if isinstance(value, int) and getattr(self, field[0]) != value:
                raise OverflowError(f"{field[0]} {value} is out of range")


class ConnectionOptions(_Checked):
    _fields_ = [("size", c_size_t), ("queue_depth", c_uint32), ("inline_bytes", c_uint32),
                ("read_depth", c_uint8), ("advertisements", c_uint8), ("domain_of", c_void_p)]


class RemoteBufferStructure(_Checked):
    _fields_ = [("address", c_uint64), ("bytes", c_uint64), ("rkey", c_uint32), ("tag", c_uint32)]


class CompletionStructure(Structure):
    _fields_ = [("id", c_uint64), ("status", c_int32), ("opcode", c_int32), ("bytes", c_uint32),
                ("immediate", c_uint32), ("invalidated_rkey", c_uint32),
                ("has_immediate", c_uint8)]


class LoopLimits(_Checked):
    _fields_ = [("size", c_size_t), ("max_message_bytes", c_uint64), ("eager_bytes", c_uint32),
                ("credits", c_uint32), ("send_queue_messages", c_size_t),
                ("send_queue_bytes", c_uint64), ("pool_bytes", c_uint64),
                ("max_connections", c_uint32), ("spin_us", c_int64)]


class MessageStructure(Structure):
    _fields_ = [("bytes", c_void_p), ("count", c_size_t), ("type", c_uint32), ("tag", c_uint64)]


class SentStructure(Structure):
    _fields_ = [("number", c_uint64), ("type", c_uint32), ("tag", c_uint64), ("count", c_uint64),
                ("error_number", c_int)]


LinkCallback = CFUNCTYPE(None, c_void_p, c_void_p)
MessageCallback = CFUNCTYPE(None, c_void_p, POINTER(MessageStructure), c_void_p)
SentCallback = CFUNCTYPE(None, c_void_p, POINTER(SentStructure), c_void_p)
ErrorCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
EndedCallback = CFUNCTYPE(None, c_void_p, c_int, c_int, c_void_p)
RequestCallback = CFUNCTYPE(None, c_void_p, c_void_p)
WorkCallback = CFUNCTYPE(None, c_void_p)


class LinkHandlers(Structure):
    _fields_ = [("size", c_size_t), ("established", LinkCallback), ("message", MessageCallback),
                ("sent", SentCallback), ("failed", SentCallback), ("delivered", SentCallback),
                ("writable", LinkCallback), ("error", ErrorCallback), ("ended", EndedCallback)]


class LinkOptions(_Checked):
    _fields_ = [("size", c_size_t), ("private_data", c_char_p), ("private_data_bytes", c_size_t),
                ("connect_timeout_ms", c_uint32), ("keepalive_ms", c_uint32),
                ("queue_while_connecting", c_uint8)]


class LinkStatistics(Structure):
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "messages_sent", "bytes_sent", "frames_sent", "messages_received", "bytes_received",
        "messages_waiting", "credit_waits", "waited_for_credits_ns")]


class StreamOptions(_Checked):
    _fields_ = [("size", c_size_t), ("send_buffer_bytes", c_uint32),
                ("receive_buffer_bytes", c_uint32), ("growth_bytes", c_uint32),
                ("keepalive_idle_ms", c_uint32), ("keepalive_interval_ms", c_uint32),
                ("keepalive_probes", c_uint32), ("private_data", c_char_p),
                ("private_data_bytes", c_size_t), ("send_queue", c_uint32),
                ("receive_queue", c_uint32), ("spin_us", c_int64), ("linger_ms", c_uint32),
                ("mapped_buffers", c_uint32), ("variant", c_int32), ("ipv6_only", c_uint8)]


class StreamEvent(Structure):
    _fields_ = [("size", c_size_t), ("type", c_int32), ("error_number", c_int32),
                ("cookie", c_uint64), ("request", c_void_p)]


class StreamStatistics(Structure):
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "bytes_sent", "bytes_received", "data_messages_sent", "data_messages_received",
        "updates_sent", "updates_received", "refused_sends", "answered_probes",
        "placed_bytes_sent")]


# A function of the library is declared by its result and its parameters. `h` is a handle, `H` a
# pointer to a handle, `p` a pointer, `P` a pointer to a structure, `s` a string. `_free` functions
# take the pointer itself: see Handle.
_TYPES = {"h": c_void_p, "H": POINTER(c_void_p), "p": c_void_p, "P": c_void_p, "s": c_char_p,
          "i": c_int, "I": c_int32, "w": c_uint16, "u": c_uint32, "q": c_uint64, "l": c_int64,
          "n": c_size_t, "z": c_ssize_t, "N": POINTER(c_size_t), "Q": POINTER(c_uint64), "v": None,
          "r": RemoteBufferStructure, "R": POINTER(RemoteBufferStructure)}
_FUNCTIONS = {
    "version": "s", "status_text": "sI",
    "connection_prepare": "iHswPi", "connection_listen": "iHswPi", "connection_next": "ihHi",
    "connection_accept": "ihHsni",
    "connection_establish": "ihsni", "connection_reject": "ihsn",
    "connection_peer_private_data": "phN", "connection_local_address": "ihsn",
    "connection_peer_address": "ihsn", "connection_listener_port": "wh",
    "connection_listener_fd": "ih", "connection_listener_free": "vh",
    "connection_start_connecting": "iHswPsn", "connection_start_establishing": "ihsn",
    "connection_await_established": "ihi", "connection_establishing_fd": "ih",
    "connection_advertisement_fd": "ih", "connection_disconnect_fd": "ih",
    "buffer_register": "ihpniH", "buffer_remote": "rh", "buffer_free": "vh",
    "post_receive": "ihhnnq", "post_send": "ihhnnqi", "post_write": "ihhnnRqqi",
    "post_read": "ihhnnRqqi", "post_send_with_immediate": "ihhnnuqi",
    "post_write_with_immediate": "ihhnnRquqi", "post_send_with_invalidate": "ihhnnuqi",
    "post_fetch_and_add": "ihhnRqqqi", "post_compare_and_swap": "ihhnRqqqqi",
    "connection_await_completions": "ihiPnni", "connection_fd": "ihi",
    "connection_advertise": "ihhu", "connection_await_advertisement": "ihRi",
    "connection_disconnect": "ih", "connection_await_disconnect": "ihi", "connection_free": "vh",
    "loop_new": "iHP", "loop_free": "vh", "loop_step": "zhi", "loop_wake": "vh", "loop_fd": "ih",
    "link_connect": "ihHswPpP", "link_listen": "ihHswPpi", "link_listener_port": "wh",
    "link_listener_free": "vh", "link_accept": "ihHPpP", "link_reject": "ihsn",
    "link_request_private_data": "phN", "link_request_peer_address": "ihsn",
    "link_send": "ihpnuqiQ", "link_is_writable": "ih", "link_max_message_bytes": "qh",
    "link_peer_private_data": "phN", "link_local_address": "ihsn", "link_peer_address": "ihsn",
    "link_get_statistics": "ihP", "message_keep": "iPH", "message_buffer_data": "ph",
    "message_buffer_size": "nh", "message_buffer_free": "vh", "link_disconnect": "ih",
    "link_finish": "ih", "link_free": "vh",
    "stream_start_connecting": "iHswP", "stream_await_connected": "ihi", "stream_send": "zhpni",
    "stream_receive": "zhpni", "stream_available": "nh", "stream_view": "zhPi",
    "stream_consume": "ihn", "stream_fd": "ih", "stream_send_fd": "ih", "stream_finish": "ih",
    "stream_close": "ihi", "stream_abort": "ih", "stream_free": "vh",
    "stream_local_address": "ihsn", "stream_peer_address": "ihsn",
    "stream_peer_private_data": "phN", "stream_listen": "iHswPi", "stream_accept": "ihHi",
    "stream_next": "ihHi", "stream_request_private_data": "phN",
    "stream_request_peer_address": "ihsn", "stream_request_accept": "ihHP",
    "stream_request_reject": "ihsn", "stream_get_statistics": "ihP",
    "stream_receive_with": "zhpnii", "stream_register": "ihpnH",
    "stream_send_registered": "zhhnni", "stream_map": "lhpnli", "stream_unmap": "ihpni",
    "stream_write_mapped": "zhpnqi", "stream_events_new": "iH", "stream_events_next": "ihPi",
    "stream_events_fd": "ih", "stream_events_free": "vh", "stream_attach": "ihhq",
    "stream_listener_attach": "ihhq", "stream_listener_port": "wh", "stream_listener_fd": "ih",
    "stream_listener_free": "vh",
}


# Of parameters that are numbers: ctypes alone would cut them.
_RANGES = {"i": (-2**31, 2**31 - 1), "I": (-2**31, 2**31 - 1), "l": (-2**63, 2**63 - 1),
           "w": (0, 2**16 - 1), "u": (0, 2**32 - 1), "q": (0, 2**64 - 1),
           "n": (0, 2**(8 * ctypes.sizeof(c_size_t)) - 1)}


class Failed(int):
    """The result of a call that has failed, with the library's sentence about it. A later call of
    this thread replaces the sentence: that of a finalizer, for example, which can run at any
    moment."""

    text = b""


_error_text = library.weft_error_text
_error_text.restype, _error_text.argtypes = c_char_p, []


def _checked(function: Any, types: str) -> Callable[..., Any]:
    """The function for handles, which it holds during the call, and for numbers in their range."""
    fails = types[0] in "izl"  # the result can be the negative number of an error
    types = types[1:]
    handles = [place for place, letter in enumerate(types) if letter == "h"]
    numbers = [(place, *_RANGES[letter]) for place, letter in enumerate(types)
               if letter in _RANGES]

    def call(*arguments: Any) -> Any:
        for place, least, most in numbers:
            if not least <= arguments[place] <= most:
                raise OverflowError(f"{arguments[place]} is not from {least} to {most}")
        passed = list(arguments)
        held = []
        try:
            for place in handles:
                handle = passed[place]
                if isinstance(handle, Handle):
                    passed[place] = handle.enter()
                    held.append(handle)
            result = function(*passed)
            if fails and result < 0:
                # At once, and before the handles are left, which may free something.
                text = _error_text()
                result = Failed(result)
                result.text = text
            return result
        finally:
            for handle in held:
                handle.leave()

    return call


class _Functions:
    """The functions of the library, by their names without `weft_`."""

    def __init__(self) -> None:
        for name, types in _FUNCTIONS.items():
            function = getattr(library, "weft_" + name)
            function.restype = _TYPES[types[0]]
            function.argtypes = [_TYPES[letter] for letter in types[1:]]
            setattr(self, name, function if name.endswith("_free") else
                    _checked(function, types))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


c = _Functions()


def check(result: int, cause: str = "") -> int:
    """Returns the result of a call, or raises the exception of its error number."""
    if result >= 0:
        return result
    text = getattr(result, "text", b"").decode("utf-8", "replace")
    raise error_of(-result, f"{cause}: {text}" if cause else text)


def milliseconds(timeout: Optional[float]) -> int:
    """A timeout in seconds as the library has it; None is no limit."""
    if timeout is None:
        return -1
    return max(0, min(int(timeout * 1000 + 0.999), 2**31 - 1))


def retried(call: Callable[[int], Any], timeout: Optional[float], again: int) -> int:
    """Calls a function with short timeouts until it returns something else than `-again`, or the
    timeout has passed. Then returns the last result."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE_MS if end is None else milliseconds(end - time.monotonic())
        result: int = call(min(left, _SLICE_MS))
        if result != -again or (end is not None and time.monotonic() >= end):
            return result


def statistics_of(call: Callable[[Any, Any], int], handle: Any, structure: Any) -> Any:
    """The counters that a function fills in, as a dictionary."""
    structure.size = ctypes.sizeof(structure)
    check(call(handle, ctypes.byref(structure)))
    return {name: getattr(structure, name) for name, *_ in structure._fields_[1:]}


def text_of(call: Callable[..., int], handle: Any) -> str:
    """A text that a function copies out."""
    room = ctypes.create_string_buffer(128)
    check(call(handle, room, len(room)))
    return room.value.decode()


def private_data_of(call: Callable[..., Optional[int]], handle: Any) -> bytes:
    """The private data that a function points to."""
    count = c_size_t()
    data = call(handle, ctypes.byref(count))
    return ctypes.string_at(data, count.value) if data and count.value else b""


def check_bytes(private_data: Any) -> None:
    """TypeError for what the library would not take, before the object is taken that it is for."""
    c_char_p.from_param(private_data)
    len(private_data)


def encoded(host: Optional[str]) -> bytes:
    """A host name as the library takes it; None and "" are any local address."""
    return (host or "").encode("idna" if host and not host.isascii() else "ascii")


def address(host: Optional[str], port: Any) -> Tuple[bytes, int]:
    """Two arguments of the library. ctypes alone would cut the port to 16 bits."""
    number = operator.index(port)
    if not 0 <= number <= 65535:
        raise ValueError(f"a port is from 0 to 65535, and not {number}")
    return encoded(host), number


__all__ = ["Error", "c", "check", "library"]
