"""Messages of any size, with callbacks from an event loop. `weft.aio` has them for asyncio.

    with weft.message.Loop() as loop:
        link = loop.connect("192.0.2.1", 7174, Handlers(message=lambda link, got: print(got.data)))
        while True:
            loop.step()

All work is done inside of `Loop.step`, and all calls but `Loop.wake` belong to the thread that
calls it. An exception of a callback is raised by the step that has called it.
"""

from __future__ import annotations

import _signal  # type: ignore[import]
import ctypes
import enum
import errno
import itertools
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple, Union

from . import _library
from ._handle import Handle
from ._library import c, check
from ._memory import Memory
from .errors import Error, error_of


class EndedBy(enum.IntEnum):
    """How a link has ended. US and PEER: one of the programs has ended it. CUT: the peer has ended
    it at once, or does not exist any more. FAILURE: see the error."""

    US = 0
    PEER = 1
    CUT = 2
    FAILURE = 3


@dataclass(frozen=True)
class Message:
    """A message that has arrived. Type and tag were chosen by the sender. With `Handlers.views`
    the data is a view of the memory in which the message has arrived, which is held by it, and
    counts against `Limits.pool_bytes`."""

    data: Union[bytes, memoryview]
    type: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Sent:
    """A message that was accepted for sending. `number` is what `Link.send` has returned;
    `error_number` is 0 if the message has not failed."""

    number: int
    type: int
    tag: int
    size: int
    error_number: int


@dataclass
class Handlers:
    """Callbacks of a link. Without `message`, messages are discarded. `views`: messages are not
    copied."""

    established: Optional[Callable[["Link"], Any]] = None
    message: Optional[Callable[["Link", Message], Any]] = None
    sent: Optional[Callable[["Link", Sent], Any]] = None
    failed: Optional[Callable[["Link", Sent], Any]] = None
    delivered: Optional[Callable[["Link", Sent], Any]] = None
    writable: Optional[Callable[["Link"], Any]] = None
    error: Optional[Callable[["Link", Error], Any]] = None
    ended: Optional[Callable[["Link", EndedBy, int], Any]] = None
    views: bool = False


@dataclass(frozen=True)
class Limits:
    """Of a loop, as weft::message::Limits. 0 is the library's default."""

    max_message_bytes: int = 0
    eager_bytes: int = 0
    credits: int = 0
    send_queue_messages: int = 0
    send_queue_bytes: int = 0
    pool_bytes: int = 0
    max_connections: int = 0
    spin_us: int = 0
    """How long a loop polls before it sleeps, in microseconds; below 0: never."""


# Objects that the library knows by a number, which is the `user` pointer of its callbacks.
_numbers = itertools.count(1)
_objects: Dict[int, Any] = {}


def _call(user: int, name: str, convert: Callable[..., Any] = lambda *_: (), *raw: Any) -> None:
    """Calls a handler of the link with that number, with what `convert` makes of the link and of
    what the library has passed. An exception of both goes to the step in progress."""
    link = _objects.get(user)
    if link is None:
        return
    try:
        handler = getattr(link.handlers, name)
        if handler is not None:
            handler(link, *convert(link, *raw))
    except BaseException as failure:
        link.loop._fail(failure)


def _sent(_: Any, structure: Any) -> Tuple[Sent]:
    one = structure.contents
    return (Sent(one.number, one.type, one.tag, one.count, one.error_number),)


def _message(link: Any, structure: Any) -> Tuple[Message]:
    one = structure.contents
    data: Union[bytes, memoryview] = b""
    if one.count and link.handlers.views:
        data = _kept(structure)
    elif one.count:
        data = ctypes.string_at(one.bytes, one.count)
    return (Message(data, one.type, one.tag),)


def _error(_: Any, number: int, text: bytes) -> Tuple[Error]:
    return (error_of(number, text.decode("utf-8", "replace")),)


def _ending(_: Any, by: int, number: int) -> Tuple[EndedBy, int]:
    return (EndedBy(by), number)


def _kept(structure: Any) -> memoryview:
    """The bytes of a message without a copy; their memory is freed with the last view of it."""
    handle = ctypes.c_void_p()
    check(c.message_keep(structure, ctypes.byref(handle)))
    size = c.message_buffer_size(handle)
    array = (ctypes.c_ubyte * size).from_address(c.message_buffer_data(handle))
    weakref.finalize(array, c.message_buffer_free, handle)
    return memoryview(array).cast("B")


def _on_request(request: int, user: int) -> None:
    listener = _objects.get(user)
    if listener is not None:
        listener._on_request(request)
    else:
        _reject(ctypes.c_void_p(request))


# The callbacks of all links. The structure must live as long as the module.
_HANDLERS = _library.LinkHandlers(
    ctypes.sizeof(_library.LinkHandlers),
    _library.LinkCallback(lambda _, user: _call(user, "established")),
    _library.MessageCallback(lambda _, got, user: _call(user, "message", _message, got)),
    _library.SentCallback(lambda _, sent, user: _call(user, "sent", _sent, sent)),
    _library.SentCallback(lambda _, sent, user: _call(user, "failed", _sent, sent)),
    _library.SentCallback(lambda _, sent, user: _call(user, "delivered", _sent, sent)),
    _library.LinkCallback(lambda _, user: _call(user, "writable")),
    _library.ErrorCallback(lambda _, number, text, user: _call(
        user, "error", _error, number, text)),
    _library.EndedCallback(lambda _, by, number, user: _call(
        user, "ended", _ending, by, number)))
_REQUEST = _library.RequestCallback(_on_request)


def _options(private_data: bytes, timeout: float, keepalive: float,
             queue_while_connecting: bool = False) -> Any:
    return ctypes.byref(_library.LinkOptions(
        ctypes.sizeof(_library.LinkOptions), private_data, len(private_data),
        _library.milliseconds(timeout), _library.milliseconds(keepalive),
        int(queue_while_connecting)))


class Link:
    """A connection for messages, from `Loop.connect` or `Request.accept`. It lives until `close` is
    called, or its loop is closed."""

    def __init__(self, loop: "Loop", handlers: Handlers) -> None:
        self.loop = loop
        self.handlers = handlers
        self._handle = Handle("the link", c.link_free)
        self._number = loop._add(self)

    def send(self, data: Any, type: int = 0, tag: int = 0, confirm: bool = False) -> int:
        """Sends one message: bytes, or any object with the buffer protocol. They are copied by the
        library once, and not by Python. Returns the number that the callbacks `sent`, `failed` and
        `delivered` (with `confirm`) have. WouldBlock if too much waits to be sent: the callback
        `writable` follows."""
        number = ctypes.c_uint64()
        with Memory(data) as memory:
            check(c.link_send(self._handle, memory.address, memory.size, type, tag, int(confirm),
                              ctypes.byref(number)))
        return number.value

    @property
    def writable(self) -> bool:
        """Whether a message would be accepted now."""
        return bool(c.link_is_writable(self._handle))

    @property
    def max_message_bytes(self) -> int:
        """The longest message that both sides allow; 0 before the link is established."""
        return int(c.link_max_message_bytes(self._handle))

    @property
    def statistics(self) -> Dict[str, int]:
        """The counters of the link, by their names in weft::message::Statistics."""
        return dict(_library.statistics_of(c.link_get_statistics, self._handle,
                                           _library.LinkStatistics()))

    @property
    def peer_private_data(self) -> bytes:
        """What the peer's program sent with its request or acceptance."""
        return _library.private_data_of(c.link_peer_private_data, self._handle)

    @property
    def local_address(self) -> str:
        """Address and port of this side."""
        return _library.text_of(c.link_local_address, self._handle)

    @property
    def peer_address(self) -> str:
        """Address and port of the peer."""
        return _library.text_of(c.link_peer_address, self._handle)

    def disconnect(self) -> None:
        """Ends the link at once. Messages that are not sent fail."""
        check(c.link_disconnect(self._handle))

    def finish(self) -> None:
        """Ends the link when all messages are sent."""
        check(c.link_finish(self._handle))

    def close(self) -> None:
        """Ends the link at once if it has not ended, without callbacks. May be called twice."""
        self.loop._remove(self._number)
        self._handle.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Request:
    """A peer that wants to connect, to be accepted or rejected in the callback or later. One that
    is neither is rejected when it is deleted, or at once if the callback raises."""

    def __init__(self, loop: "Loop", handle: int) -> None:
        self.loop = loop
        self._handle = Handle("the request", _reject)
        self._handle.pointer = ctypes.c_void_p(handle)
        self.private_data = _library.private_data_of(c.link_request_private_data, handle)
        self.peer_address = _library.text_of(c.link_request_peer_address, handle)

    def accept(self, handlers: Handlers, private_data: bytes = b"",
               keepalive: float = 0) -> Link:
        """Accepts; the callback `established` or `error` follows."""
        options = _options(private_data, 0, keepalive)
        link = Link(self.loop, handlers)
        try:
            check(c.link_accept(self._handle.take(), link._handle.out(), ctypes.byref(_HANDLERS),
                                link._number, options))
        except BaseException:
            link.close()
            raise
        return link

    def reject(self, private_data: bytes = b"") -> None:
        """Rejects; the peer's link has ECONNREFUSED."""
        _library.check_bytes(private_data)
        _reject(self._handle.take(), private_data)

    def __del__(self) -> None:
        self._handle.close()


def _reject(pointer: ctypes.c_void_p, private_data: bytes = b"") -> None:
    check(c.link_reject(pointer, private_data, len(private_data)))


class Listener:
    """Listens for links, from `Loop.listen`."""

    def __init__(self, loop: "Loop", on_request: Callable[[Request], Any]) -> None:
        self.loop = loop
        self.on_request = on_request
        self._handle = Handle("the listener", c.link_listener_free)
        self._number = loop._add(self)

    def _on_request(self, handle: int) -> None:
        request = None
        try:
            request = Request(self.loop, handle)
            self.on_request(request)
        except BaseException as failure:
            self.loop._fail(failure)
            # The traceback of the failure may keep the request for longer.
            if request is not None:
                request._handle.close()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(c.link_listener_port(self._handle))

    def close(self) -> None:
        """Stops listening. Links are not affected. May be called twice."""
        self.loop._remove(self._number)
        self._handle.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LaterInterrupt:
    """Calls the handler of SIGINT when the block has ended. Within a callback of the library its
    KeyboardInterrupt could be raised outside of all handlers of exceptions: it would be lost, with
    the message that the callback was for."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._arguments: Optional[Tuple[Any, ...]] = None

    def _note(self, *arguments: Any) -> None:
        self._arguments = arguments

    # By the module below `signal`, whose own functions make an enumeration of each result: that
    # takes longer than a step.
    def __enter__(self) -> "_LaterInterrupt":
        # Python calls handlers in the main thread only.
        if threading.get_ident() == threading.main_thread().ident:
            handler = _signal.getsignal(_signal.SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        # A callback may have set another handler, which stays.
        if self._handler is not None and _signal.getsignal(_signal.SIGINT) == self._note:
            _signal.signal(_signal.SIGINT, self._handler)
        if self._arguments is not None:
            self._handler(*self._arguments)

    @property
    def noted(self) -> bool:
        """Whether the handler is to be called."""
        return self._arguments is not None


class Loop:
    """An event loop for links."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._handle = Handle("the loop", c.loop_free)
        self._members: Dict[int, Any] = {}
        self._failure: Optional[BaseException] = None
        self._woken = False
        structure = _library.LoopLimits(
            ctypes.sizeof(_library.LoopLimits), limits.max_message_bytes, limits.eager_bytes,
            limits.credits, limits.send_queue_messages, limits.send_queue_bytes, limits.pool_bytes,
            limits.max_connections, limits.spin_us)
        check(c.loop_new(self._handle.out(), ctypes.byref(structure)))

    def _add(self, member: Any) -> int:
        number = next(_numbers)
        self._members[number] = _objects[number] = member
        return number

    def _remove(self, number: int) -> None:
        self._members.pop(number, None)
        _objects.pop(number, None)

    def _fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure

    def step(self, timeout: Optional[float] = None) -> int:
        """Does all work that is due, and waits for some until the timeout if there is none. Returns
        how much it was. Raises the first exception of a callback."""
        return self._step(timeout) or 0

    def _step(self, timeout: Optional[float]) -> Optional[int]:
        """Like `step`, but None if the timeout has passed without work, and without `wake`."""
        try:
            with _LaterInterrupt() as interrupt:
                result = _library.retried(lambda ms: self._step_once(ms, interrupt), timeout,
                                          errno.EAGAIN)
        finally:
            self._woken = False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return None if result == -errno.EAGAIN else check(result)

    def _step_once(self, timeout_ms: int, interrupt: _LaterInterrupt) -> int:
        done: int = c.loop_step(self._handle, timeout_ms)
        return done if done or self._woken or interrupt.noted else -errno.EAGAIN

    def run_until(self, condition: Callable[[], Any], timeout: Optional[float] = None) -> None:
        """Calls `step` until the condition holds. Timeout if a step finds no work for so long."""
        while not condition():
            if self._step(timeout) is None:
                raise error_of(errno.ETIMEDOUT, "the loop had no work until the timeout")

    def wake(self) -> None:
        """Ends the wait of a step, the one that runs or the next one, and `run_until` looks at its
        condition. May be called in any thread."""
        # The library returns from a call of a step, which then ends as well.
        self._woken = True
        c.loop_wake(self._handle)

    def fileno(self) -> int:
        """A descriptor for poll(2), readable while `step` has work to do."""
        return check(c.loop_fd(self._handle))

    def connect(self, host: str, port: int, handlers: Handlers, private_data: bytes = b"",
                timeout: float = 10.0, keepalive: float = 0,
                queue_while_connecting: bool = False) -> Link:
        """Begins to connect; the callback `established` or `error` follows. A name is looked up by
        a thread of the library. A keepalive of 0 seconds is none. With `queue_while_connecting`
        messages may be sent at once: they wait, and fail if the link is never established."""
        link = Link(self, handlers)
        try:
            check(c.link_connect(self._handle, link._handle.out(),
                                 *_library.address(host, port), ctypes.byref(_HANDLERS),
                                 link._number,
                                 _options(private_data, timeout, keepalive,
                                          queue_while_connecting)))
        except BaseException:
            link.close()
            raise
        return link

    def listen(self, host: str, port: int, on_request: Callable[[Request], Any],
               backlog: int = 0) -> Listener:
        """Listens, and calls `on_request` for each peer. An empty host is any local address, and
        port 0 a free port."""
        listener = Listener(self, on_request)
        try:
            check(c.link_listen(self._handle, listener._handle.out(),
                                *_library.address(host, port),
                                ctypes.cast(_REQUEST, ctypes.c_void_p), listener._number, backlog))
        except BaseException:
            listener.close()
            raise
        return listener

    def close(self) -> None:
        """Closes all links and listeners of the loop, and the loop. Not in a callback. May be
        called twice."""
        if self._handle.begin_closing() is None:
            return
        try:
            for member in list(self._members.values()):
                member.close()
        finally:
            self._handle.leave()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()
