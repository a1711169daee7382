"""RDMA connections: registered buffers, sends, receives, remote writes and reads.

    with weft.connection.connect("192.0.2.1", 7174) as peer:
        buffer = peer.register(numpy.zeros(1024))
        peer.post_send(buffer)
        peer.await_sends()

Requests refer to registered memory and copy nothing. Until its outcome was taken, a request keeps
its buffer, and the buffer keeps the Python object whose memory it is.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import itertools
import mmap
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, List, Optional, Tuple, cast

from . import _library
from ._handle import Handle
from ._library import CompletionStructure, RemoteBufferStructure, c, check
from ._memory import Memory
from .errors import Error, timeout_error


class Access(enum.IntFlag):
    """What the peer may do with a buffer."""

    LOCAL = 0
    REMOTE_READ = 1
    REMOTE_WRITE = 2
    REMOTE_ATOMIC = 4


class Flags(enum.IntFlag):
    """Of posted requests. UNSIGNALED: there is an outcome only if the request fails. SOLICITED: the
    peer's completion is a solicited event. FENCE: the request waits for earlier reads. COPIED: the
    bytes are copied by the call, at most `inline_bytes`."""

    NONE = 0
    UNSIGNALED = 1
    SOLICITED = 2
    FENCE = 4
    COPIED = 8


class Opcode(enum.IntEnum):
    """What a request was. RECEIVE_OF_WRITE: a receive that a write with immediate has taken."""

    SEND = 0
    WRITE = 1
    READ = 2
    COMPARE_AND_SWAP = 3
    FETCH_AND_ADD = 4
    RECEIVE = 128
    RECEIVE_OF_WRITE = 129


class Queue(enum.IntEnum):
    """A connection has two queues of outcomes."""

    SENDS = 0
    RECEIVES = 1


@dataclass(frozen=True)
class Options:
    """Of a connection. 0 is the library's default. Both sides must set `advertisements`. With
    `domain_of`, another connection, the buffers of both can be used in requests of either."""

    queue_depth: int = 0
    inline_bytes: int = 0
    read_depth: int = 0
    advertisements: bool = False
    domain_of: Optional["Connection"] = None

    def _structure(self) -> Any:
        structure = _library.ConnectionOptions(
            ctypes.sizeof(_library.ConnectionOptions), self.queue_depth, self.inline_bytes,
            self.read_depth, int(self.advertisements))
        if self.domain_of is not None:
            # The other connection is not freed before the structure, which the call has.
            handle = self.domain_of._handle
            structure.domain_of = handle.enter()
            weakref.finalize(structure, handle.leave)
        return ctypes.byref(structure)


@dataclass(frozen=True)
class RemoteBuffer:
    """A buffer of the peer. `pack` and `unpack` are its form in 24 bytes, for a message of one's
    own; `advertise` needs neither."""

    address: int
    size: int
    rkey: int
    tag: int = 0

    def pack(self) -> bytes:
        """The bytes that name the buffer to the peer."""
        return (self.address.to_bytes(8, "big") + self.size.to_bytes(8, "big") +
                self.rkey.to_bytes(4, "big") + self.tag.to_bytes(4, "big"))

    @classmethod
    def unpack(cls, data: bytes) -> "RemoteBuffer":
        """From what `pack` has returned at the peer."""
        if len(data) != 24:
            raise ValueError("a packed RemoteBuffer has 24 bytes")
        ends = (0, 8, 16, 20, 24)
        return cls(*(int.from_bytes(data[a:b], "big") for a, b in zip(ends, ends[1:])))

    def _structure(self) -> RemoteBufferStructure:
        return RemoteBufferStructure(self.address, self.size, self.rkey, self.tag)


@dataclass(frozen=True)
class Outcome:
    """Of a posted request. Of one that has succeeded: `bytes` is the size of a receive or read,
    `immediate` is what the message carried, and `invalidated_rkey` what the peer's send has
    invalidated."""

    id: int
    status: int
    bytes: int
    opcode: Optional[Opcode] = None
    immediate: Optional[int] = None
    invalidated_rkey: Optional[int] = None

    @property
    def ok(self) -> bool:
        """Whether the request has succeeded."""
        return self.status == 0

    @property
    def status_text(self) -> str:
        """The meaning of the status in a few words."""
        return str(c.status_text(self.status).decode())

    def check(self) -> "Outcome":
        """Raises an Error if the request has failed."""
        if not self.ok:
            raise Error(errno.EIO, f"request {self.id} has failed: {self.status_text}")
        return self


def _outcome(one: Any) -> Outcome:
    if one.status != 0:
        return Outcome(one.id, one.status, one.bytes)
    return Outcome(one.id, one.status, one.bytes, Opcode(one.opcode),
                   one.immediate if one.has_immediate else None, one.invalidated_rkey or None)


class Buffer:
    """Registered memory, which belongs to `owner`: the object that was passed to `register`."""

    def __init__(self, owner: Any, access: Access,
                 register: Callable[[int, int, Any], int]) -> None:
        """By `register` of a connection or stream: `register` takes address, size and handle."""
        memory = Memory(owner)

        def free(pointer: ctypes.c_void_p) -> None:
            c.buffer_free(pointer)
            memory.release()

        self._handle = Handle("the buffer", free)
        self._posted = 0
        self._memory = memory
        try:
            if memory.readonly and access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC):
                raise BufferError("the peer cannot write to memory that is read-only")
            check(register(memory.address, memory.size, self._handle.out()))
        except BaseException:
            memory.release()
            raise

    @property
    def owner(self) -> Any:
        """The object whose memory was registered."""
        return self._memory.owner

    @property
    def view(self) -> memoryview:
        """The bytes of the buffer, not copied."""
        return memoryview(self.owner).cast("B")

    @property
    def readonly(self) -> bool:
        """Whether nothing can be received into the buffer."""
        return self._memory.readonly

    @property
    def remote(self) -> RemoteBuffer:
        """What the peer needs in order to access the buffer, which must be kept for so long."""
        remote = c.buffer_remote(self._handle)
        return RemoteBuffer(remote.address, remote.bytes, remote.rkey, remote.tag)

    def __len__(self) -> int:
        return self._memory.size

    def close(self) -> None:
        """Ends the registration: waits for accesses by the peer that are in progress, and refuses
        later ones. BufferError while a posted request uses the buffer."""
        if self._posted:
            raise BufferError("a posted request uses the buffer: await its outcome first")
        self._handle.close()

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()


class Connection:
    """A connection, from `connect`, `prepare` or `Listener`. A prepared one can have buffers and
    receives before `establish` is called. Several threads may use it, also while one closes it,
    but one alone establishes it."""

    def __init__(self) -> None:
        # Posted requests of each queue in their order, which is also that of their outcomes.
        posted: Tuple[Deque[Tuple[int, Buffer]], ...] = (deque(), deque())
        advertised: List[Buffer] = []

        def free(pointer: ctypes.c_void_p) -> None:
            c.connection_free(pointer)
            advertised.clear()
            for queue in posted:
                while queue:
                    queue.popleft()[1]._posted -= 1

        self._handle = Handle("the connection", free)
        self._established = False
        self._ids = itertools.count(1)
        self._posted = posted
        self._advertised = advertised
        # The last request of each queue that has an outcome also if it succeeds.
        self._last_signaled = [0, 0]

    def establish(self, private_data: bytes = b"", timeout: Optional[float] = 10.0) -> None:
        """Connects or accepts, and waits until the connection is established. Not interrupted by
        signals."""
        check(c.connection_establish(self._handle, private_data, len(private_data),
                                     _library.milliseconds(timeout)))
        self._established = True

    def start_establishing(self, private_data: bytes = b"") -> None:
        """Begins to connect or to accept, and does not wait for the result. Until the connection is
        established, all other calls but `await_established` and `close` raise NotConnected."""
        check(c.connection_start_establishing(self._handle, private_data, len(private_data)))

    def await_established(self, timeout: Optional[float] = None) -> None:
        """Waits for the result of `start_connecting` or `start_establishing`."""
        result = _library.retried(lambda ms: c.connection_await_established(self._handle, ms),
                                  timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("the connection was not established until the timeout")
        check(result)
        self._established = True

    def establishing_fileno(self) -> int:
        """A descriptor for poll(2), readable while `await_established` may get on. It changes: ask
        for it again after each call that raises Timeout."""
        return check(c.connection_establishing_fd(self._handle))

    def reject(self, private_data: bytes = b"") -> None:
        """Rejects the peer of a connection from `Listener.next`."""
        check(c.connection_reject(self._handle, private_data, len(private_data)))

    @property
    def peer_private_data(self) -> bytes:
        """What the peer's program sent with its request or acceptance."""
        return _library.private_data_of(c.connection_peer_private_data, self._handle)

    @property
    def local_address(self) -> str:
        """Address and port of this side."""
        return _library.text_of(c.connection_local_address, self._handle)

    @property
    def peer_address(self) -> str:
        """Address and port of the peer."""
        return _library.text_of(c.connection_peer_address, self._handle)

    # --- Buffers

    def register(self, memory: Any, access: Access = Access.LOCAL) -> Buffer:
        """Registers the memory of an object with the buffer protocol: bytes, bytearray, mmap, an
        array of numpy. Nothing is copied, and the object cannot be resized until the buffer is
        closed. Read-only memory can be sent from, and read by the peer."""
        return Buffer(memory, access, lambda address, size, handle: cast(int, c.buffer_register(
            self._handle, address, size, int(access), handle)))

    def allocate(self, size: int, access: Access = Access.LOCAL) -> Buffer:
        """A buffer of zero bytes on pages of its own."""
        return self.register(mmap.mmap(-1, size), access)

    # --- Requests. Each returns the id of its outcome. Without `size`, the part of the buffer from
    # `offset` on is used.

    def post_receive(self, buffer: Buffer, offset: int = 0, size: Optional[int] = None) -> int:
        """Posts a receive, which takes the next send of the peer."""
        self._check_writable(buffer)
        return self._post(Queue.RECEIVES, buffer, lambda id: c.post_receive(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), id))

    def post_send(self, buffer: Buffer, offset: int = 0, size: Optional[int] = None,
                  flags: Flags = Flags.NONE) -> int:
        """Sends a part of a buffer from where it is."""
        return self._post(Queue.SENDS, buffer, lambda id: c.post_send(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), id, int(flags)), flags)

    def post_write(self, buffer: Buffer, remote: RemoteBuffer, remote_offset: int = 0,
                   offset: int = 0, size: Optional[int] = None, flags: Flags = Flags.NONE) -> int:
        """Writes a part of a buffer into one of the peer."""
        there = remote._structure()
        return self._post(Queue.SENDS, buffer, lambda id: c.post_write(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), ctypes.byref(there),
            remote_offset, id, int(flags)), flags)

    def post_read(self, buffer: Buffer, remote: RemoteBuffer, remote_offset: int = 0,
                  offset: int = 0, size: Optional[int] = None, flags: Flags = Flags.NONE) -> int:
        """Reads a part of a buffer of the peer into a part of this one."""
        self._check_writable(buffer)
        there = remote._structure()
        return self._post(Queue.SENDS, buffer, lambda id: c.post_read(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), ctypes.byref(there),
            remote_offset, id, int(flags)), flags)

    def post_send_with_immediate(self, buffer: Buffer, immediate: int, offset: int = 0,
                                 size: Optional[int] = None, flags: Flags = Flags.NONE) -> int:
        """Sends with 32 bits, which the peer finds in its outcome."""
        return self._post(Queue.SENDS, buffer, lambda id: c.post_send_with_immediate(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), immediate, id,
            int(flags)), flags)

    def post_write_with_immediate(self, buffer: Buffer, remote: RemoteBuffer, immediate: int,
                                  remote_offset: int = 0, offset: int = 0,
                                  size: Optional[int] = None, flags: Flags = Flags.NONE) -> int:
        """Writes, and completes one of the peer's receives with 32 bits."""
        there = remote._structure()
        return self._post(Queue.SENDS, buffer, lambda id: c.post_write_with_immediate(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), ctypes.byref(there),
            remote_offset, immediate, id, int(flags)), flags)

    def post_send_with_invalidate(self, buffer: Buffer, rkey: int, offset: int = 0,
                                  size: Optional[int] = None, flags: Flags = Flags.NONE) -> int:
        """Sends, and invalidates an rkey of the peer: of a memory window of type 2."""
        return self._post(Queue.SENDS, buffer, lambda id: c.post_send_with_invalidate(
            self._handle, buffer._handle, offset, _rest(buffer, offset, size), rkey, id,
            int(flags)), flags)

    def post_fetch_and_add(self, buffer: Buffer, remote: RemoteBuffer, addend: int,
                           remote_offset: int = 0, offset: int = 0,
                           flags: Flags = Flags.NONE) -> int:
        """Adds to eight bytes of the peer that are aligned to eight. Their value before is stored
        in eight bytes of the buffer. The peer's buffer needs Access.REMOTE_ATOMIC. A negative
        number is its two's complement."""
        self._check_writable(buffer)
        there = remote._structure()
        return self._post(Queue.SENDS, buffer, lambda id: c.post_fetch_and_add(
            self._handle, buffer._handle, offset, ctypes.byref(there), remote_offset,
            _eight_bytes(addend), id, int(flags)), flags)

    def post_compare_and_swap(self, buffer: Buffer, remote: RemoteBuffer, expected: int,
                              desired: int, remote_offset: int = 0, offset: int = 0,
                              flags: Flags = Flags.NONE) -> int:
        """Stores `desired` in eight bytes of the peer if they are `expected`, as
        `post_fetch_and_add`."""
        self._check_writable(buffer)
        there = remote._structure()
        return self._post(Queue.SENDS, buffer, lambda id: c.post_compare_and_swap(
            self._handle, buffer._handle, offset, ctypes.byref(there), remote_offset,
            _eight_bytes(expected), _eight_bytes(desired), id, int(flags)), flags)

    @staticmethod
    def _check_writable(buffer: Buffer) -> None:
        if buffer.readonly:
            raise BufferError("nothing can be received into memory that is read-only")

    def _post(self, queue: Queue, buffer: Buffer, call: Any, flags: Flags = Flags.NONE) -> int:
        posted = self._posted[queue]
        # The ids of a queue are in the order in which its requests are posted.
        with self._handle.lock:
            id = next(self._ids)
            posted.append((id, buffer))
            buffer._posted += 1
            try:
                check(call(id))
            except BaseException:
                posted.pop()
                buffer._posted -= 1
                raise
            if not flags & Flags.UNSIGNALED:
                self._last_signaled[queue] = id
            return id

    def await_outcomes(self, queue: Queue, count: int = 1,
                       timeout: Optional[float] = None) -> List[Outcome]:
        """Waits for outcomes of one queue. There are fewer than `count` if the timeout has passed,
        or if no posted request is left that could still have one. Failures are outcomes, too."""
        end = None if timeout is None else time.monotonic() + timeout
        found: List[Outcome] = []
        posted = self._posted[queue]
        while len(found) < count and posted and posted[0][0] <= self._last_signaled[queue]:
            begin = time.monotonic()
            left = _library._SLICE_MS
            if end is not None:
                left = min(left, _library.milliseconds(end - begin))
            some = self._take(queue, count - len(found), left)
            found += some
            now = time.monotonic()
            # A call that returns early with nothing has nothing to wait for.
            if not some and now - begin < left / 1000:
                break
            if end is not None and now >= end:
                break
        # Unsignaled requests that have failed.
        return found or (self._take(queue, count, 0) if posted else [])

    def _take(self, queue: Queue, count: int, timeout_ms: int) -> List[Outcome]:
        room = (CompletionStructure * count)()
        got = check(c.connection_await_completions(
            self._handle, int(queue), room, ctypes.sizeof(CompletionStructure), count, timeout_ms))
        posted = self._posted[queue]
        with self._handle.lock:
            for outcome in room[:got]:
                # Earlier requests without an outcome of their own have succeeded.
                while posted and posted[0][0] <= outcome.id:
                    posted.popleft()[1]._posted -= 1
        return [_outcome(one) for one in room[:got]]

    def _await_all(self, queue: Queue, count: int, timeout: Optional[float]) -> List[Outcome]:
        found = self.await_outcomes(queue, count, timeout)
        for outcome in found:
            outcome.check()
        if len(found) < count:
            raise timeout_error(f"{len(found)} of {count} requests of {self.peer_address} have "
                                "completed, and the timeout has passed or no other is posted")
        return found

    def await_sends(self, count: int = 1, timeout: Optional[float] = None) -> List[Outcome]:
        """Waits until that many sends, writes and reads have succeeded; raises if one has failed,
        or Timeout if there are fewer."""
        return self._await_all(Queue.SENDS, count, timeout)

    def await_receives(self, count: int = 1, timeout: Optional[float] = None) -> List[Outcome]:
        """Waits until that many receives have succeeded, as `await_sends` does."""
        return self._await_all(Queue.RECEIVES, count, timeout)

    def fileno(self, queue: Queue = Queue.RECEIVES) -> int:
        """A descriptor for poll(2), readable while an outcome may be available. Call
        `await_outcomes` with timeout 0 then, and once before the first poll."""
        return check(c.connection_fd(self._handle, int(queue)))

    # --- Advertising

    def advertise(self, buffer: Buffer, tag: int = 0) -> None:
        """Names a buffer to the peer, which takes it by `await_advertisement`. Both sides need
        `Options(advertisements=True)`. The connection keeps the buffer until it is closed."""
        check(c.connection_advertise(self._handle, buffer._handle, tag))
        self._advertised.append(buffer)

    def await_advertisement(self, timeout: Optional[float] = None) -> RemoteBuffer:
        """Waits for the next buffer that the peer advertises."""
        remote = RemoteBufferStructure()
        result = _library.retried(lambda ms: c.connection_await_advertisement(
            self._handle, ctypes.byref(remote), ms), timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("the peer has advertised no buffer until the timeout")
        check(result)
        return RemoteBuffer(remote.address, remote.bytes, remote.rkey, remote.tag)

    def advertisement_fileno(self) -> int:
        """A descriptor for poll(2), readable when it is time to call `await_advertisement` with
        timeout 0. Call that once before the first poll."""
        return check(c.connection_advertisement_fd(self._handle))

    # --- The end

    def disconnect_fileno(self) -> int:
        """A descriptor for poll(2), readable when the connection may have ended, and always after
        its end; then call `await_disconnect` with timeout 0."""
        return check(c.connection_disconnect_fd(self._handle))

    def disconnect(self) -> None:
        """Ends the connection; posted requests are flushed on both sides."""
        check(c.connection_disconnect(self._handle))

    def await_disconnect(self, timeout: Optional[float] = None) -> None:
        """Waits until one side has ended the connection."""
        result = _library.retried(lambda ms: c.connection_await_disconnect(self._handle, ms),
                                  timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("the connection has not ended until the timeout")
        check(result)

    def close(self) -> None:
        """Disconnects if that was not done, and frees the connection. Messages that have arrived
        and were not received are dropped. Its buffers stay registered until they are closed. Calls
        of other threads that wait fail, with ValueError or an Error. May be called twice."""
        pointer = self._handle.begin_closing()
        if pointer is None:
            return
        try:
            if self._established:
                c.connection_disconnect(pointer)  # ends the waits of other threads
        finally:
            self._handle.leave()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


def _rest(buffer: Buffer, offset: int, size: Optional[int]) -> int:
    if offset < 0 or (size is not None and size < 0) or offset > len(buffer):
        raise IndexError(f"offset {offset} and size {size} are not within {len(buffer)} bytes")
    return len(buffer) - offset if size is None else size


def _eight_bytes(number: int) -> int:
    if not -2**63 <= number < 2**64:
        raise OverflowError(f"{number} does not fit into eight bytes")
    return number % 2**64


def prepare(host: str, port: int, options: Options = Options(),
            timeout: Optional[float] = 10.0) -> Connection:
    """Resolves the peer and creates the queues. `establish` connects."""
    connection = Connection()
    check(c.connection_prepare(connection._handle.out(), *_library.address(host, port),
                               options._structure(), _library.milliseconds(timeout)))
    return connection


def start_connecting(host: str, port: int, options: Options = Options(),
                     private_data: bytes = b"") -> Connection:
    """Begins to connect, and does not wait for the result, nor for the look-up of a name."""
    connection = Connection()
    check(c.connection_start_connecting(connection._handle.out(), *_library.address(host, port),
                                        options._structure(), private_data, len(private_data)))
    return connection


def connect(host: str, port: int, options: Options = Options(), private_data: bytes = b"",
            timeout: Optional[float] = 10.0) -> Connection:
    """Connects; the timeout is that of each of the two steps."""
    connection = prepare(host, port, options, timeout)
    try:
        connection.establish(private_data, timeout)
    except Error:
        connection.close()
        raise
    return connection


class Listener:
    """Listens. An empty host is any local address, and port 0 a free port."""

    def __init__(self, host: str = "", port: int = 0, options: Options = Options(),
                 backlog: int = 0) -> None:
        self._handle = Handle("the listener", c.connection_listener_free)
        check(c.connection_listen(self._handle.out(), *_library.address(host, port),
                                  options._structure(), backlog))

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(c.connection_listener_port(self._handle))

    def fileno(self) -> int:
        """A descriptor for poll(2), readable while a peer may be waiting: then call `next` or
        `accept` with timeout 0."""
        return check(c.connection_listener_fd(self._handle))

    def next(self, timeout: Optional[float] = None) -> Connection:
        """Waits for the next peer. Its connection is prepared: post receives, then `establish`."""
        connection = Connection()
        result = _library.retried(
            lambda ms: c.connection_next(self._handle, connection._handle.out(), ms), timeout,
            errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("no peer has asked to connect until the timeout")
        check(result)
        return connection

    def accept(self, private_data: bytes = b"", timeout: Optional[float] = None) -> Connection:
        """Accepts peers until one of them is connected. One that is silent after its request keeps
        no other one waiting."""
        connection = Connection()
        result = _library.retried(
            lambda ms: c.connection_accept(self._handle, connection._handle.out(), private_data,
                                           len(private_data), ms),
            timeout, errno.EAGAIN)
        if result == -errno.EAGAIN:
            raise timeout_error("no peer has connected until the timeout")
        check(result)
        connection._established = True
        return connection

    def close(self) -> None:
        """Stops listening. Connections are not affected. While other threads wait in its calls, the
        last of them does that: each raises ValueError soon. May be called twice."""
        self._handle.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()
