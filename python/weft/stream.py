"""Byte streams, which do what TCP sockets do. `weft.aio` has them for asyncio.

    with weft.stream.connect("192.0.2.1", 7174) as stream:
        stream.send_all(b"hello")
        answer = stream.receive(4096)
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import itertools
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Union, cast

from . import _library
from ._handle import Handle
from ._library import c, check
from ._memory import Memory
from .connection import Access, Buffer
from .errors import Error, timeout_error


class Variant(enum.IntEnum):
    """How messages are transferred. AUTOMATIC: by immediates, if both devices support them."""

    AUTOMATIC = 0
    IMMEDIATE = 1
    WRITE_AND_SEND = 2


class ReceiveFlags(enum.IntFlag):
    """As those of recv(2). PEEK: the bytes can be received again. WAIT_ALL: waits until all are
    there, the stream ends or fails, or the timeout passes."""

    NONE = 0
    PEEK = 1
    WAIT_ALL = 2


@dataclass(frozen=True)
class Options:
    """Of a stream. 0 is the library's default. Times are in seconds. `spin_us`: how long a call of
    the library polls before it blocks, in microseconds; below 0: never. `mapped_buffers`: how many
    of its buffers the peer may map for this side."""

    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    growth_bytes: int = 0
    keepalive_idle: float = 0
    keepalive_interval: float = 0
    keepalive_probes: int = 0
    private_data: bytes = b""
    send_queue: int = 0
    receive_queue: int = 0
    spin_us: int = 0
    linger: float = 0
    mapped_buffers: int = 0
    variant: Variant = Variant.AUTOMATIC
    ipv6_only: bool = False

    def _structure(self) -> Any:
        return ctypes.byref(_library.StreamOptions(
            ctypes.sizeof(_library.StreamOptions), self.send_buffer_bytes,
            self.receive_buffer_bytes, self.growth_bytes,
            _library.milliseconds(self.keepalive_idle),
            _library.milliseconds(self.keepalive_interval), self.keepalive_probes,
            self.private_data, len(self.private_data), self.send_queue, self.receive_queue,
            self.spin_us, _library.milliseconds(self.linger), self.mapped_buffers,
            int(self.variant), int(self.ipv6_only)))


class Stream:
    """A stream, from `connect`, `start_connecting` or `Listener.accept`. Several threads may use
    it, also while one closes it."""

    def __init__(self) -> None:
        mapped: List[Memory] = []

        def free(pointer: ctypes.c_void_p) -> None:
            c.stream_free(pointer)
            while mapped:
                mapped.pop().release()

        self._handle = Handle("the stream", free)
        # The last view, and the memory that it and all views of it have in common.
        self._view: Optional[memoryview] = None
        self._viewed: Optional[Callable[[], Any]] = None
        self._mapped = mapped

    def await_connected(self, timeout: Optional[float] = None) -> None:
        """Waits for the result of `start_connecting`."""
        result = _library.retried(lambda ms: c.stream_await_connected(self._handle, ms), timeout,
                                  errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("the stream was not connected until the timeout")
        check(result)

    def send(self, data: Any, timeout: Optional[float] = None) -> int:
        """Sends bytes of any object with the buffer protocol, which Python does not copy. Returns
        how many were sent: at least one, and fewer than all only if the timeout has passed. Raises
        Timeout if none was sent."""
        with Memory(data) as memory:
            return self._send(memory, 0, timeout)

    def _send(self, memory: Memory, offset: int, timeout: Optional[float]) -> int:
        if offset == memory.size:
            return 0
        done = 0

        def attempt(limit: int) -> int:
            nonlocal done
            got: int = c.stream_send(self._handle, memory.address + offset + done,
                                     memory.size - offset - done, limit)
            if got < 0:
                return got
            done += got
            return got if offset + done == memory.size else -errno.EAGAIN

        return self._moved(_library.retried(attempt, timeout, errno.EAGAIN), done)

    def send_all(self, data: Any, timeout: Optional[float] = None) -> None:
        """Sends all bytes. Raises Timeout if `timeout` passes without one byte sent."""
        with Memory(data) as memory:
            done = 0
            while done < memory.size:
                done += self._send(memory, done, timeout)

    def receive_into(self, memory: Any, timeout: Optional[float] = None,
                     flags: ReceiveFlags = ReceiveFlags.NONE) -> int:
        """Receives into a writable object with the buffer protocol: waits for the first byte.
        Returns how many there were, and 0 at the end of the stream, again and again. With PEEK the
        call is not interrupted by signals."""
        with Memory(memory) as place:
            if place.readonly:
                raise BufferError("nothing can be received into memory that is read-only")
            done = 0

            def attempt(limit: int) -> int:
                nonlocal done
                got: int = c.stream_receive_with(self._handle, place.address + done,
                                                 place.size - done, int(flags), limit)
                # A part of WAIT_ALL: a call that is short was cut by its time, or is at the end.
                if 0 < got < place.size - done and flags == ReceiveFlags.WAIT_ALL:
                    done += got
                    return -errno.EAGAIN
                # A failure is reported by the next call, behind the bytes of this one.
                if got < 0 and got != -errno.EAGAIN and done:
                    return done
                return got + done if got >= 0 else got

            if flags & ReceiveFlags.PEEK:
                # In one call: the parts of several would be the same bytes.
                result = attempt(_library.milliseconds(timeout))
            else:
                result = _library.retried(attempt, timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            if done:
                return done
            raise timeout_error("no byte has arrived until the timeout")
        return check(result)

    def receive(self, size: int, timeout: Optional[float] = None,
                flags: ReceiveFlags = ReceiveFlags.NONE) -> bytes:
        """Receives up to `size` bytes; b"" is the end of the stream."""
        room = bytearray(size)
        return bytes(memoryview(room)[:self.receive_into(room, timeout, flags)])

    def view(self, timeout: Optional[float] = None) -> memoryview:
        """Receives without a copy: waits for bytes, and returns those that lie side by side where
        they have arrived; an empty view is the end of the stream. They are returned again until
        `consume`. The view is released then, and by the next `view` and by `close`: using it later
        raises ValueError. BufferError while a part of the view before is in use. The peer can
        change these bytes at any time."""
        self._release_view()
        at = ctypes.c_void_p()
        result = _library.retried(lambda ms: c.stream_view(self._handle, ctypes.byref(at), ms),
                                  timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("no byte has arrived until the timeout")
        size = check(result)
        with self._handle.lock:
            self._handle.check_open()
            if not at.value or not size:
                self._view = memoryview(b"")
                return self._view
            place = (ctypes.c_ubyte * size).from_address(at.value)
            # All views of the bytes keep `place`, which counts as a call in progress: a stream that
            # is closed is freed with the last of them.
            self._handle.enter()
            weakref.finalize(place, self._handle.leave).atexit = False
            self._viewed = weakref.ref(place)
            self._view = memoryview(place).cast("B").toreadonly()
            return self._view

    def consume(self, size: int) -> None:
        """The first `size` bytes of the last `view` are received. The view is released. Raises
        BufferError while a part of the view is in use, as a slice of it is."""
        self._release_view()
        check(c.stream_consume(self._handle, size))

    def _release_view(self) -> None:
        with self._handle.lock:
            if self._view is not None:
                self._view.release()
                self._view = None
            if self._viewed is not None and self._viewed() is not None:
                raise BufferError("a part of the view before is in use: release it first")
            self._viewed = None

    # --- Memory that is sent from, or written to, where it is

    def register(self, memory: Any) -> Buffer:
        """Registers the memory of an object with the buffer protocol for `send_registered`. Raises
        NotConnected before the stream is connected."""
        return Buffer(memory, Access.LOCAL, lambda address, size, handle: cast(
            int, c.stream_register(self._handle, address, size, handle)))

    def send_registered(self, buffer: Buffer, offset: int = 0, size: Optional[int] = None,
                        timeout: Optional[float] = None) -> int:
        """Sends a part of a registered buffer without a copy. Returns as `send` does; the memory
        may be changed then."""
        end = len(buffer) if size is None else offset + size
        if not 0 <= offset <= end <= len(buffer):
            raise IndexError(f"bytes {offset} to {end} are not within {len(buffer)} bytes")
        done = 0

        def attempt(limit: int) -> int:
            nonlocal done
            got: int = c.stream_send_registered(self._handle, buffer._handle, offset + done,
                                                end - offset - done, limit)
            if got < 0:
                return got
            done += got
            return got if offset + done == end else -errno.EAGAIN

        return self._moved(_library.retried(attempt, timeout, errno.EAGAIN), done)

    @staticmethod
    def _moved(result: int, done: int) -> int:
        if done:
            return done
        if result == -errno.EAGAIN:
            raise timeout_error("the peer has taken no byte until the timeout")
        return check(result)

    def map_buffer(self, memory: Any, offset: int = -1, timeout: Optional[float] = None) -> int:
        """Lets the peer write to a writable object with the buffer protocol, which it addresses by
        `offset`; with -1 the stream chooses one. Returns the offset, which the peer can use when it
        has received what this side sends behind it. The stream keeps the object until
        `unmap_buffer` or `close`. The peer's `Options.mapped_buffers` is the limit: ENOBUFS."""
        place = Memory(memory)
        try:
            if place.readonly:
                raise BufferError("the peer cannot write to memory that is read-only")
            result = _library.retried(lambda ms: c.stream_map(
                self._handle, place.address, place.size, offset, ms), timeout, errno.EAGAIN)
            if result == -errno.EAGAIN:
                raise timeout_error("the peer could not take the mapping until the timeout")
            result = check(result)
        except BaseException:
            place.release()
            raise
        self._mapped.append(place)
        return result

    def unmap_buffer(self, memory: Any, timeout: Optional[float] = None) -> None:
        """Ends a mapping; the peer cannot write there any more. ValueError if the object is not
        mapped."""
        for place in self._mapped:
            if place.owner is memory:
                break
        else:
            raise ValueError("the object is not mapped")
        result = _library.retried(lambda ms: c.stream_unmap(
            self._handle, place.address, place.size, ms), timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("the peer could not take the end of the mapping until the timeout")
        check(result)
        self._mapped.remove(place)
        place.release()

    def write_mapped(self, data: Any, offset: int, timeout: Optional[float] = None) -> int:
        """Writes to a buffer that the peer has mapped, in order with what is sent. Returns as
        `send` does. EFAULT if these offsets are not mapped."""
        with Memory(data) as memory:
            done = 0

            def attempt(limit: int) -> int:
                nonlocal done
                got: int = c.stream_write_mapped(self._handle, memory.address + done,
                                                 memory.size - done, offset + done, limit)
                if got < 0:
                    return got
                done += got
                return got if done == memory.size else -errno.EAGAIN

            return self._moved(_library.retried(attempt, timeout, errno.EAGAIN), done)

    @property
    def statistics(self) -> Dict[str, int]:
        """The counters of the stream, by their names in weft::stream::Statistics."""
        return dict(_library.statistics_of(c.stream_get_statistics, self._handle,
                                           _library.StreamStatistics()))

    @property
    def available(self) -> int:
        """Bytes that can be received without waiting."""
        return int(c.stream_available(self._handle))

    def fileno(self) -> int:
        """A descriptor for poll(2): readable while bytes, the end or a failure can be received, and
        when a send that was short can go on."""
        return check(c.stream_fd(self._handle))

    def send_fileno(self) -> int:
        """A descriptor for poll(2): readable when a send that was short can go on or fails, and for
        nothing else."""
        return check(c.stream_send_fd(self._handle))

    @property
    def peer_private_data(self) -> bytes:
        """What the peer's program sent with its request or acceptance."""
        return _library.private_data_of(c.stream_peer_private_data, self._handle)

    @property
    def local_address(self) -> str:
        """Address and port of this side."""
        return _library.text_of(c.stream_local_address, self._handle)

    @property
    def peer_address(self) -> str:
        """Address and port of the peer."""
        return _library.text_of(c.stream_peer_address, self._handle)

    def finish(self) -> None:
        """Ends the sending direction. The peer receives the end behind all bytes."""
        check(c.stream_finish(self._handle))

    def abort(self) -> None:
        """Ends the stream at once: the peer gets ECONNRESET."""
        check(c.stream_abort(self._handle))

    def close(self, linger: float = 5.0) -> bool:
        """Ends the stream and frees it. Returns whether the peer's device has everything that was
        sent; waits for that until the linger time. Calls of other threads that wait fail, with
        ValueError or an Error. Parts of a view that are in use stay valid, and keep the memory of
        the stream. May be called twice."""
        with self._handle.lock:
            with contextlib.suppress(BufferError):
                self._release_view()
            self._view = None
            pointer = self._handle.begin_closing()
        if pointer is None:
            return True
        try:
            return bool(c.stream_close(pointer, _library.milliseconds(linger)) == 0)
        finally:
            self._handle.leave()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close(0)


def start_connecting(host: str, port: int, options: Options = Options()) -> Stream:
    """Begins to connect, and does not wait for the result."""
    stream = Stream()
    check(c.stream_start_connecting(stream._handle.out(), *_library.address(host, port),
                                    options._structure()))
    return stream


def connect(host: str, port: int, options: Options = Options(),
            timeout: Optional[float] = 10.0) -> Stream:
    """Connects, and waits for the result."""
    stream = start_connecting(host, port, options)
    try:
        stream.await_connected(timeout)
    except Error:
        stream.close(0)
        raise
    return stream


class Request:
    """A peer that wants to connect, from `Listener.next`. One that is neither accepted nor rejected
    is rejected when it is deleted."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.private_data = _library.private_data_of(c.stream_request_private_data, handle)
        self.peer_address = _library.text_of(c.stream_request_peer_address, handle)

    def accept(self, options: Optional[Options] = None) -> Stream:
        """Accepts. The stream is still connecting, and its calls wait for that. Without options
        those of the listener are used."""
        stream = Stream()
        structure = options._structure() if options else None
        check(c.stream_request_accept(self._handle.take(), stream._handle.out(), structure))
        return stream

    def reject(self, private_data: bytes = b"") -> None:
        """Rejects: the peer's stream is Refused."""
        _library.check_bytes(private_data)
        _reject(self._handle.take(), private_data)

    def __del__(self) -> None:
        self._handle.close()


def _reject(pointer: ctypes.c_void_p, private_data: bytes = b"") -> None:
    check(c.stream_request_reject(pointer, private_data, len(private_data)))


def _request_handle() -> Handle:
    return Handle("the request", _reject)


class Listener:
    """Listens. An empty host is any local address, and port 0 a free port. The accepted streams get
    the options."""

    def __init__(self, host: str = "", port: int = 0, options: Options = Options(),
                 backlog: int = 0) -> None:
        self._handle = Handle("the listener", c.stream_listener_free)
        check(c.stream_listen(self._handle.out(), *_library.address(host, port),
                              options._structure(), backlog))

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(c.stream_listener_port(self._handle))

    def fileno(self) -> int:
        """A descriptor for poll(2), readable while a peer may be waiting."""
        return check(c.stream_listener_fd(self._handle))

    def next(self, timeout: Optional[float] = None) -> Request:
        """Waits for a peer, and lets the program decide. `accept` accepts all peers that have
        asked, so a program uses either of both."""
        handle = _request_handle()
        result = _library.retried(
            lambda ms: c.stream_next(self._handle, handle.out(), ms), timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("no peer has asked to connect until the timeout")
        check(result)
        return Request(handle)

    def accept(self, timeout: Optional[float] = None) -> Stream:
        """Waits for a peer, and accepts it."""
        stream = Stream()
        result = _library.retried(
            lambda ms: c.stream_accept(self._handle, stream._handle.out(), ms), timeout,
            errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("no peer has asked to connect until the timeout")
        check(result)
        return stream

    def close(self) -> None:
        """Stops listening. Streams are not affected. While other threads wait in its calls, the last of them does that: each raises
        ValueError soon. May be called twice."""
        self._handle.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


class EventType(enum.IntEnum):
    """CONNECT_REQUEST: a peer wants to connect to the listener, see `Event.request`. CONNECTED.
    FAILED: the stream could not be connected. SHUTDOWN: the peer has sent its last byte or, with an
    error number, the connection is lost."""

    CONNECT_REQUEST = 0
    CONNECTED = 1
    FAILED = 2
    SHUTDOWN = 3


@dataclass(frozen=True)
class Event:
    """Of a listener or stream, `source`; None if that does not exist any more."""

    type: EventType
    source: Union[Stream, Listener, None]
    error_number: int
    request: Optional[Request]


class EventQueue:
    """One queue for the events of many listeners and streams. Several threads may use it."""

    def __init__(self) -> None:
        self._handle = Handle("the queue", c.stream_events_free)
        check(c.stream_events_new(self._handle.out()))
        self._numbers = itertools.count(1)
        self._sources: "weakref.WeakValueDictionary[int, Union[Stream, Listener]]" = (
            weakref.WeakValueDictionary())

    def attach(self, source: Union[Stream, Listener]) -> None:
        """From now on the events of the stream, or the requests of the listener, go to this queue,
        and those of the listener not to `next` and `accept`. The queue does not keep the source."""
        number = next(self._numbers)
        self._sources[number] = source
        _attach(source, self._handle, number)

    @staticmethod
    def detach(source: Union[Stream, Listener]) -> None:
        """Ends `attach`."""
        _attach(source, None, 0)

    def next(self, timeout: Optional[float] = None) -> Event:
        """Waits for the next event; Timeout if there is none."""
        event = _library.StreamEvent(ctypes.sizeof(_library.StreamEvent))
        result = _library.retried(lambda ms: c.stream_events_next(
            self._handle, ctypes.byref(event), ms), timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("there was no event until the timeout")
        check(result)
        request = None
        if event.request:
            handle = _request_handle()
            handle.pointer = ctypes.c_void_p(event.request)
            request = Request(handle)
        return Event(EventType(event.type), self._sources.get(event.cookie), event.error_number,
                     request)

    def fileno(self) -> int:
        """A descriptor for poll(2), readable while there is an event."""
        return check(c.stream_events_fd(self._handle))

    def close(self) -> None:
        """Frees the queue. While other threads wait in its calls, the last of them does that: each raises
        ValueError soon. May be called twice."""
        self._handle.close()

    def __enter__(self) -> "EventQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


def _attach(source: Union[Stream, Listener], queue: Any, number: int) -> None:
    attach = c.stream_attach if isinstance(source, Stream) else c.stream_listener_attach
    check(attach(source._handle, queue, number))
