"""Connections, messages and streams for asyncio.

    async with await weft.aio.connect_link("192.0.2.1", 7174) as link:
        await link.send(b"hello")
        answer = await link.receive()

All calls belong to the thread of the event loop that the object was made in. Cancelling a receive
loses nothing; a cancelled send of a stream may have sent a part. Cancelling a request of a
connection does not take it back: it stays posted, and the connection keeps its buffer.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import ipaddress
import socket
from typing import Any, AsyncIterator, Awaitable, Callable, Deque, Dict, Optional, Set

from . import connection as _connection
from . import message as _message
from . import stream as _stream
from ._memory import Memory
from .connection import Access, Buffer, Flags, Outcome, Queue, RemoteBuffer
from .errors import Elapsed, Error, NotConnected, WouldBlock, error_of
from .message import EndedBy, Handlers, Limits, Message, Sent

__all__ = ["Connection", "ConnectionListener", "Link", "LinkListener", "Stream", "StreamListener",
           "connect_connection", "connect_link", "connect_stream", "listen_connections",
           "listen_links", "listen_streams", "prepare_connection"]


async def _address_of(host: str) -> str:
    """The first address of a name, found without blocking the event loop."""
    try:
        ipaddress.ip_address(host.split("%")[0])
        return host
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as failed:
        raise Error(errno.ENXIO, f"cannot resolve \"{host}\": {failed.strerror}; check the name, "
                    "or use a numeric address") from failed
    return str(found[0][4][0])


async def _in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls what may block for a moment."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


class _Engine:
    """The loop of messages within one event loop of asyncio. Exists while a link or listener
    does."""

    engines: Dict[asyncio.AbstractEventLoop, "_Engine"] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.asyncio = loop
        self.messages = _message.Loop(limits)
        self.members: Set[Any] = set()
        loop.add_reader(self.messages.fileno(), self.step)
        _Engine.engines[loop] = self

    @classmethod
    def running(cls, limits: Optional[Limits]) -> "_Engine":
        loop = asyncio.get_running_loop()
        engine = cls.engines.get(loop)
        if engine is None:
            # Those of event loops that were closed first. Other threads add and remove theirs
            # meanwhile: only single operations of the dictionary are atomic.
            for old in list(cls.engines):
                closed = cls.engines.pop(old, None) if old.is_closed() else None
                if closed is not None:
                    closed.messages.close()
            engine = cls(loop, limits or Limits())
        elif limits is not None:
            raise error_of(errno.EBUSY, "the links of this event loop have their limits already: "
                           "pass them with the first link or listener")
        return engine

    def step(self) -> None:
        self.messages.step(0)

    def remove(self, member: Any) -> None:
        self.members.discard(member)
        # Not here: this may be a callback, inside of a step.
        if not self.members:
            self.asyncio.call_soon(self.close_if_unused)

    def close_if_unused(self) -> None:
        if not self.members and _Engine.engines.get(self.asyncio) is self:
            del _Engine.engines[self.asyncio]
            self.asyncio.remove_reader(self.messages.fileno())
            self.messages.close()


class _Signal:
    """Wakes all coroutines that wait for it."""

    def __init__(self) -> None:
        self._waiters: Dict["asyncio.Future[None]", None] = {}

    def set(self, *_: Any) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)  # of one that was cancelled


# So many peers of one listener may be in the middle of connecting, since each takes memory. Further
# ones wait until one of them is established or has failed.
_CONNECTING = 128


async def _as_established(take: Callable[[], Any], wait: Callable[[], Awaitable[Any]],
                          establish: Callable[[Any], Awaitable[Any]]) -> AsyncIterator[Any]:
    """Accepts peers, and yields their objects in the order in which they are established: one that
    is silent delays no other. `take` returns the object of the next peer, or None if none has
    asked; `wait` waits for that. Both raise ValueError when the listener is closed."""
    connecting: Dict["asyncio.Future[Any]", Any] = {}
    waiting: Optional["asyncio.Future[Any]"] = None
    try:
        while True:
            _take_all(take, establish, connecting)
            if waiting is None or waiting.done():
                waiting = asyncio.ensure_future(wait())
            wanted = [waiting] if len(connecting) < _CONNECTING else []
            await asyncio.wait([*wanted, *connecting], return_when=asyncio.FIRST_COMPLETED)
            for task in [one for one in connecting if one.done()]:
                found, failure = connecting.pop(task), task.exception()
                if failure is None:
                    yield found
                elif not isinstance(failure, (Error, ValueError)):
                    raise failure
                # Otherwise this peer has left; others come.
            if waiting.done():
                waiting.result()
    except ValueError:
        return
    finally:
        if waiting is not None:
            _forget(waiting)
        for task, one in connecting.items():
            _forget(task)
            one.close()


def _take_all(take: Callable[[], Any], establish: Callable[[Any], Awaitable[Any]],
              connecting: Dict["asyncio.Future[Any]", Any]) -> None:
    while len(connecting) < _CONNECTING:
        try:
            one = take()
        except Error:
            return  # this peer has left, or there is a shortage: the next turn tries again
        if one is None:
            return
        connecting[asyncio.ensure_future(establish(one))] = one


def _forget(task: "asyncio.Future[Any]") -> None:
    """Nobody waits for the task any more, or for its exception."""
    if not task.cancel() and not task.cancelled():
        task.exception()


class Link:
    """A connection for messages. Messages that arrive are kept until they are received, without a
    limit: a program that does not want that answers each, and lets the peer wait for it."""

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine
        self._changed = _Signal()
        self._link: Any = None
        self._established = False
        self._error: Optional[Error] = None
        self._ended: Optional[EndedBy] = None
        self._messages: Deque[Message] = collections.deque()
        self._confirmations: Dict[int, "asyncio.Future[None]"] = {}
        engine.members.add(self)

    def _handlers(self) -> Handlers:
        return Handlers(established=self._on_established, message=self._on_message,
                        delivered=self._on_delivered, failed=self._on_failed,
                        writable=self._changed.set, error=self._on_error, ended=self._on_ended)

    def _on_established(self, _: Any) -> None:
        self._established = True
        self._changed.set()

    def _on_message(self, _: Any, message: Message) -> None:
        self._messages.append(message)
        self._changed.set()

    def _on_delivered(self, _: Any, sent: Sent) -> None:
        waiter = self._confirmations.pop(sent.number, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _on_failed(self, _: Any, sent: Sent) -> None:
        waiter = self._confirmations.pop(sent.number, None)
        if waiter is not None and not waiter.done():
            waiter.set_exception(error_of(sent.error_number or errno.ECONNRESET,
                                          f"message {sent.number} was not delivered"))

    def _on_error(self, _: Any, error: Error) -> None:
        self._error = error
        self._changed.set()

    def _on_ended(self, _: Any, by: EndedBy, number: int) -> None:
        self._ended = by
        if number and self._error is None:
            self._error = error_of(number, f"the link has ended: {by.name.lower()}")
        self._changed.set()

    async def _until_established(self) -> "Link":
        try:
            while not self._established:
                if self._error is not None:
                    raise self._error
                await self._changed.wait()
        except BaseException:
            self.close()
            raise
        return self

    async def send(self, data: Any, type: int = 0, tag: int = 0, confirm: bool = False) -> None:
        """Sends one message, and waits while too much waits to be sent. With `confirm`, waits until
        the peer's program has processed it, too."""
        while True:
            if self._link is None:
                raise ValueError("the link is closed")
            try:
                number = self._link.send(data, type, tag, confirm)
                break
            except WouldBlock:
                await self._changed.wait()
        if confirm:
            waiter = asyncio.get_running_loop().create_future()
            self._confirmations[number] = waiter
            await waiter

    async def receive(self) -> Message:
        """Waits for the next message. EOFError when the peer or this side has ended the link in
        order and all messages were received; an Error if it was lost."""
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._ended is not None:
                raise EOFError("the link has ended")
            if self._link is None:
                raise ValueError("the link is closed")
            await self._changed.wait()
        return self._messages.popleft()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """All messages until the link ends in order."""
        while True:
            try:
                message = await self.receive()
            except EOFError:
                return
            yield message

    @property
    def peer_private_data(self) -> bytes:
        """What the peer's program sent with its request or acceptance."""
        return bytes(self._link.peer_private_data)

    @property
    def peer_address(self) -> str:
        """Address and port of the peer."""
        return str(self._link.peer_address)

    async def finish(self) -> None:
        """Ends the link when all messages are sent, and waits until it has ended."""
        if self._ended is None and self._error is None:
            self._link.finish()
        while self._ended is None and self._error is None:
            await self._changed.wait()

    def close(self) -> None:
        """Ends the link at once. May be called twice."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
            self._ended = self._ended or EndedBy.US
            for waiter in self._confirmations.values():
                if not waiter.done():
                    waiter.set_exception(NotConnected(errno.ENOTCONN, "the link was closed"))
            self._confirmations.clear()
            self._changed.set()
        self._engine.remove(self)

    async def __aenter__(self) -> "Link":
        return self

    async def __aexit__(self, kind: Any, *_: object) -> None:
        if kind is None and self._link is not None:
            await self.finish()
        self.close()


async def connect_link(host: str, port: int, private_data: bytes = b"", timeout: float = 10.0,
                       keepalive: float = 0, limits: Optional[Limits] = None) -> Link:
    """Connects, and waits until the link is established. `limits` are those of all links of this
    event loop, and are passed with the first one only."""
    address = await _address_of(host)
    engine = _Engine.running(limits)
    link = Link(engine)
    try:
        link._link = engine.messages.connect(address, port, link._handlers(), private_data,
                                             timeout, keepalive)
    except BaseException:
        link.close()
        raise
    return await link._until_established()


class LinkListener:
    """Listens for links, from `listen_links`. Iterating accepts peers until it is closed, and
    yields each when it is established."""

    def __init__(self, engine: _Engine, host: str, port: int, backlog: int) -> None:
        self._engine = engine
        self._changed = _Signal()
        self._requests: Deque[_message.Request] = collections.deque()
        self._listener = engine.messages.listen(host, port, self._on_request, backlog)
        self._open = True
        self.port = self._listener.port
        engine.members.add(self)

    def _on_request(self, request: _message.Request) -> None:
        self._requests.append(request)
        self._changed.set()

    async def accept(self, private_data: bytes = b"", keepalive: float = 0) -> Link:
        """Waits for the next peer, accepts it, and waits until the link is established."""
        await self._requested()
        return await self._accept_first(private_data, keepalive)._until_established()

    async def _requested(self) -> None:
        while not self._requests:
            if not self._open:
                raise ValueError("the listener is closed")
            await self._changed.wait()

    def _accept_first(self, private_data: bytes = b"", keepalive: float = 0) -> Link:
        link = Link(self._engine)
        try:
            link._link = self._requests.popleft().accept(link._handlers(), private_data, keepalive)
        except BaseException:
            link.close()
            raise
        return link

    def __aiter__(self) -> AsyncIterator[Link]:
        return _as_established(lambda: self._accept_first() if self._requests else None,
                               self._requested, Link._until_established)

    def close(self) -> None:
        """Stops listening, and rejects peers that were not accepted. May be called twice."""
        if self._open:
            self._open = False
            while self._requests:
                self._requests.popleft().reject()
            self._listener.close()
            self._changed.set()
            self._engine.remove(self)

    async def __aenter__(self) -> "LinkListener":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def listen_links(host: str = "", port: int = 0, backlog: int = 0,
                       limits: Optional[Limits] = None) -> LinkListener:
    """Listens for links. An empty host is any local address, and port 0 a free port."""
    engine = _Engine.running(limits)
    try:
        return LinkListener(engine, host, port, backlog)
    except BaseException:
        engine.close_if_unused()
        raise


class _Readiness:
    """Waits until a descriptor is readable; several coroutines may wait. stop() comes before the
    descriptor is closed, since another object may get its number then."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._signal = _Signal()
        self._loop = asyncio.get_running_loop()

    def _on_readable(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._signal.set()

    def stop(self) -> None:
        """Stops watching for ever, and wakes all. May be called twice."""
        if self._descriptor >= 0:
            self._on_readable()
            self._descriptor = -1

    async def wait(self) -> None:
        """ValueError after stop()."""
        if self._descriptor < 0:
            raise ValueError("the object that is waited for is closed")
        self._loop.add_reader(self._descriptor, self._on_readable)
        await self._signal.wait()

    async def wait_once(self) -> None:
        """For a descriptor that nothing else waits for, and that may be closed afterwards."""
        try:
            await self.wait()
        finally:
            self.stop()


class Stream:
    """A byte stream, from `connect_stream` or `StreamListener`."""

    def __init__(self, stream: _stream.Stream) -> None:
        self._stream = stream
        self._readiness = _Readiness(stream.fileno())
        self._room = _Readiness(stream.send_fileno())

    async def _retried(self, call: Callable[[], Any]) -> Any:
        """Repeats a call that does not wait. The descriptor is also readable where a send that was
        given up could go on: then the call is repeated after a millisecond."""
        futile = False
        while True:
            try:
                return call()
            except Elapsed:
                if futile:
                    await asyncio.sleep(0.001)
            await self._readiness.wait()
            futile = True

    async def receive(self, size: int) -> bytes:
        """Receives up to `size` bytes; b"" is the end of the stream."""
        return bytes(await self._retried(lambda: self._stream.receive(size, 0)))

    async def receive_into(self, memory: Any) -> int:
        """Receives into writable memory. Returns how many bytes there were, 0 at the end."""
        return int(await self._retried(lambda: self._stream.receive_into(memory, 0)))

    async def receive_exactly(self, size: int) -> bytes:
        """Receives `size` bytes; EOFError if the stream ends before."""
        room = bytearray(size)
        done = 0
        while done < size:
            got = await self.receive_into(memoryview(room)[done:])
            if got == 0:
                raise EOFError(f"the stream has ended after {done} of {size} bytes")
            done += got
        return bytes(room)

    async def view(self) -> memoryview:
        """Receives without a copy: see `weft.stream.Stream.view`. An empty view is the end."""
        view: memoryview = await self._retried(lambda: self._stream.view(0))
        return view

    def consume(self, size: int) -> None:
        """The first `size` bytes of the last `view` are received. BufferError while a part of the
        view is in use."""
        self._stream.consume(size)

    async def _send_all(self, size: int, send: Callable[[int], int]) -> None:
        done = 0
        while done < size:
            try:
                done += send(done)
            except Elapsed:
                await self._room.wait()

    async def send(self, data: Any) -> None:
        """Sends all bytes; waits while the buffer of the stream is full."""
        with Memory(data) as memory:
            await self._send_all(memory.size, lambda done: self._stream._send(memory, done, 0))

    def register(self, memory: Any) -> Buffer:
        """Registers the memory of an object for `send_registered`."""
        return self._stream.register(memory)

    async def send_registered(self, buffer: Buffer, offset: int = 0,
                              size: Optional[int] = None) -> None:
        """Sends all of a part of a registered buffer, without a copy."""
        count = len(buffer) - offset if size is None else size
        await self._send_all(count, lambda done: self._stream.send_registered(
            buffer, offset + done, count - done, 0))

    async def map_buffer(self, memory: Any, offset: int = -1) -> int:
        """Lets the peer write to an object: see `weft.stream.Stream.map_buffer`."""
        return int(await _in_thread(self._stream.map_buffer, memory, offset))

    async def unmap_buffer(self, memory: Any) -> None:
        """Ends a mapping."""
        await _in_thread(self._stream.unmap_buffer, memory)

    async def write_mapped(self, data: Any, offset: int) -> None:
        """Writes all bytes to a buffer that the peer has mapped."""
        view = memoryview(data).cast("B")
        await self._send_all(len(view), lambda done: self._stream.write_mapped(
            view[done:], offset + done, 0))

    @property
    def peer_address(self) -> str:
        """Address and port of the peer."""
        return self._stream.peer_address

    @property
    def peer_private_data(self) -> bytes:
        """What the peer's program sent with its request or acceptance."""
        return self._stream.peer_private_data

    def finish(self) -> None:
        """Ends the sending direction; receiving goes on."""
        self._stream.finish()

    def abort(self) -> None:
        """Ends the stream at once: the peer gets ECONNRESET."""
        self._stream.abort()

    def _stop_waiting(self) -> None:
        self._readiness.stop()
        self._room.stop()

    async def close(self, linger: float = 5.0) -> bool:
        """Ends the stream. Returns whether the peer's device has everything that was sent; waits
        for that until the linger time. May be called twice."""
        self._stop_waiting()
        return bool(await _in_thread(self._stream.close, linger))

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect_stream(host: str, port: int,
                         options: _stream.Options = _stream.Options()) -> Stream:
    """Connects, and waits for the result. Use `asyncio.wait_for` for a timeout of one's own."""
    stream = Stream(_stream.start_connecting(await _address_of(host), port, options))
    try:
        await stream._retried(lambda: stream._stream.await_connected(0))
    except BaseException:
        stream._stop_waiting()
        stream._stream.close(0)
        raise
    return stream


class StreamListener:
    """Listens for streams, from `listen_streams`. Iterating accepts peers until it is closed."""

    def __init__(self, listener: _stream.Listener) -> None:
        self._listener = listener
        self._readiness = _Readiness(listener.fileno())
        self.port = listener.port

    async def accept(self) -> Stream:
        """Waits for a peer, and accepts it."""
        while True:
            try:
                return Stream(self._listener.accept(0))
            except Elapsed:
                await self._readiness.wait()

    async def __aiter__(self) -> AsyncIterator[Stream]:
        while True:
            try:
                stream = await self.accept()
            except ValueError:
                return
            except Error:
                continue  # this peer has left; others come
            yield stream

    def close(self) -> None:
        """Stops listening. May be called twice."""
        if not self._listener._handle.closed:
            self._readiness.stop()
            self._listener.close()

    async def __aenter__(self) -> "StreamListener":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def listen_streams(host: str = "", port: int = 0,
                         options: _stream.Options = _stream.Options(),
                         backlog: int = 0) -> StreamListener:
    """Listens for streams. An empty host is any local address, and port 0 a free port."""
    return StreamListener(_stream.Listener(host, port, options, backlog))


class _Requests:
    """The requests of one queue of a connection, and the coroutines that wait for them."""

    def __init__(self, connection: _connection.Connection, queue: Queue) -> None:
        self._connection = connection
        self._queue = queue
        self._futures: Dict[int, "asyncio.Future[Outcome]"] = {}
        self._room = _Signal()
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1

    def start(self) -> None:
        """The connection is established: outcomes are collected from now on."""
        self._descriptor = self._connection.fileno(self._queue)
        if self._futures:
            self._watch()

    def posted(self, id: int) -> "asyncio.Future[Outcome]":
        """The future of a request."""
        future = self._futures[id] = self._loop.create_future()
        if self._descriptor >= 0 and len(self._futures) == 1:
            self._watch()
        return future

    async def post(self, call: Callable[[], int]) -> Outcome:
        """Posts as soon as there is room in the queue, and waits for the outcome."""
        while True:
            try:
                future = self.posted(call())
                break
            except Error as error:
                if error.errno != errno.ENOMEM or not self._futures:
                    raise
            await self._room.wait()
        return (await future).check()

    def _watch(self) -> None:
        self._loop.add_reader(self._descriptor, self._collect)
        self._collect()  # the descriptor becomes readable for what comes after this

    def _collect(self) -> None:
        while True:
            try:
                found = self._connection._take(self._queue, 64, 0)
            except Error as failure:
                return self.stop(failure)
            for outcome in found:
                future = self._futures.pop(outcome.id, None)
                if future is not None and not future.done():
                    future.set_result(outcome)
            if not found:
                break
            self._room.set()
        if not self._futures:
            self._loop.remove_reader(self._descriptor)

    def stop(self, failure: Optional[Error] = None) -> None:
        """The connection is closed or, after a failure, cannot be waited for at present."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            if failure is None:
                self._descriptor = -1  # another object may get the number
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(failure or NotConnected(errno.ENOTCONN,
                                                             "the connection was closed"))
        self._room.set()


class Connection:
    """A connection, from `connect_connection`, `prepare_connection` or `ConnectionListener`. Its
    requests return their outcome, or raise an Error if they fail. Any number of coroutines may use
    it."""

    def __init__(self, connection: _connection.Connection) -> None:
        self._connection = connection
        self._requests = {queue: _Requests(connection, queue) for queue in Queue}
        self._advertisements: Optional[_Readiness] = None
        self._disconnection: Optional[_Readiness] = None
        self._establishing: Optional[_Readiness] = None

    async def establish(self, private_data: bytes = b"") -> "Connection":
        """Connects or accepts, and waits for the result."""
        self._connection.start_establishing(private_data)
        return await self._until_established()

    async def _until_established(self) -> "Connection":
        try:
            while True:
                try:
                    self._connection.await_established(0)
                    break
                except Elapsed:
                    pass
                self._establishing = _Readiness(self._connection.establishing_fileno())
                await self._establishing.wait_once()
            for requests in self._requests.values():
                requests.start()
            self._advertisements = _Readiness(self._connection.advertisement_fileno())
            self._disconnection = _Readiness(self._connection.disconnect_fileno())
        except BaseException:
            self.close()
            raise
        return self

    def reject(self, private_data: bytes = b"") -> None:
        """Rejects the peer of a connection from `ConnectionListener.next`."""
        self._connection.reject(private_data)

    @property
    def peer_private_data(self) -> bytes:
        """What the peer's program sent with its request or acceptance."""
        return self._connection.peer_private_data

    @property
    def peer_address(self) -> str:
        """Address and port of the peer."""
        return self._connection.peer_address

    def register(self, memory: Any, access: Access = Access.LOCAL) -> Buffer:
        """Registers the memory of an object with the buffer protocol."""
        return self._connection.register(memory, access)

    def allocate(self, size: int, access: Access = Access.LOCAL) -> Buffer:
        """A buffer of zero bytes on pages of its own."""
        return self._connection.allocate(size, access)

    # --- Requests

    def post_receive(self, buffer: Buffer, offset: int = 0,
                     size: Optional[int] = None) -> "asyncio.Future[Outcome]":
        """Posts a receive at once, also before the connection is established, and returns the
        future of its outcome, which may be a failure."""
        id = self._connection.post_receive(buffer, offset, size)
        return self._requests[Queue.RECEIVES].posted(id)

    async def receive(self, buffer: Buffer, offset: int = 0,
                      size: Optional[int] = None) -> Outcome:
        """Posts a receive, and waits for a send of the peer."""
        return await self._requests[Queue.RECEIVES].post(
            lambda: self._connection.post_receive(buffer, offset, size))

    async def _send(self, flags: Flags, post: Callable[[], int]) -> Outcome:
        if flags & Flags.UNSIGNALED:
            raise ValueError("a request without an outcome cannot be awaited")
        return await self._requests[Queue.SENDS].post(post)

    async def send(self, buffer: Buffer, offset: int = 0, size: Optional[int] = None,
                   flags: Flags = Flags.NONE) -> Outcome:
        """Sends a part of a buffer."""
        return await self._send(flags, lambda: self._connection.post_send(
            buffer, offset, size, flags))

    async def write(self, buffer: Buffer, remote: RemoteBuffer, remote_offset: int = 0,
                    offset: int = 0, size: Optional[int] = None,
                    flags: Flags = Flags.NONE) -> Outcome:
        """Writes a part of a buffer into one of the peer."""
        return await self._send(flags, lambda: self._connection.post_write(
            buffer, remote, remote_offset, offset, size, flags))

    async def read(self, buffer: Buffer, remote: RemoteBuffer, remote_offset: int = 0,
                   offset: int = 0, size: Optional[int] = None,
                   flags: Flags = Flags.NONE) -> Outcome:
        """Reads a part of a buffer of the peer into a part of this one."""
        return await self._send(flags, lambda: self._connection.post_read(
            buffer, remote, remote_offset, offset, size, flags))

    async def send_with_immediate(self, buffer: Buffer, immediate: int, offset: int = 0,
                                  size: Optional[int] = None,
                                  flags: Flags = Flags.NONE) -> Outcome:
        """Sends with 32 bits, which the peer finds in its outcome."""
        return await self._send(flags, lambda: self._connection.post_send_with_immediate(
            buffer, immediate, offset, size, flags))

    async def write_with_immediate(self, buffer: Buffer, remote: RemoteBuffer, immediate: int,
                                   remote_offset: int = 0, offset: int = 0,
                                   size: Optional[int] = None,
                                   flags: Flags = Flags.NONE) -> Outcome:
        """Writes, and completes one of the peer's receives with 32 bits."""
        return await self._send(flags, lambda: self._connection.post_write_with_immediate(
            buffer, remote, immediate, remote_offset, offset, size, flags))

    async def send_with_invalidate(self, buffer: Buffer, rkey: int, offset: int = 0,
                                   size: Optional[int] = None,
                                   flags: Flags = Flags.NONE) -> Outcome:
        """Sends, and invalidates an rkey of the peer."""
        return await self._send(flags, lambda: self._connection.post_send_with_invalidate(
            buffer, rkey, offset, size, flags))

    async def fetch_and_add(self, buffer: Buffer, remote: RemoteBuffer, addend: int,
                            remote_offset: int = 0, offset: int = 0,
                            flags: Flags = Flags.NONE) -> Outcome:
        """Adds to eight bytes of the peer; their value before is in eight bytes of the buffer."""
        return await self._send(flags, lambda: self._connection.post_fetch_and_add(
            buffer, remote, addend, remote_offset, offset, flags))

    async def compare_and_swap(self, buffer: Buffer, remote: RemoteBuffer, expected: int,
                               desired: int, remote_offset: int = 0, offset: int = 0,
                               flags: Flags = Flags.NONE) -> Outcome:
        """Stores `desired` in eight bytes of the peer if they are `expected`."""
        return await self._send(flags, lambda: self._connection.post_compare_and_swap(
            buffer, remote, expected, desired, remote_offset, offset, flags))

    # --- Advertising, and the end

    def advertise(self, buffer: Buffer, tag: int = 0) -> None:
        """Names a buffer to the peer, which takes it by `await_advertisement`."""
        self._connection.advertise(buffer, tag)

    async def await_advertisement(self) -> RemoteBuffer:
        """Waits for the next buffer that the peer advertises."""
        found: RemoteBuffer = await self._until(self._advertisements,
                                                lambda: self._connection.await_advertisement(0))
        return found

    async def await_disconnect(self) -> None:
        """Waits until one side has ended the connection."""
        await self._until(self._disconnection, lambda: self._connection.await_disconnect(0))

    async def _until(self, readiness: Optional[_Readiness], call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except Elapsed:
                pass
            if readiness is not None:
                await readiness.wait()

    def disconnect(self) -> None:
        """Ends the connection; posted requests are flushed on both sides."""
        self._connection.disconnect()

    def close(self) -> None:
        """Disconnects if that was not done, and frees the connection. Coroutines that wait for
        requests raise NotConnected. May be called twice."""
        for requests in self._requests.values():
            requests.stop()
        for readiness in (self._advertisements, self._disconnection, self._establishing):
            if readiness is not None:
                readiness.stop()
        self._advertisements = self._disconnection = None
        self._connection.close()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def connect_connection(host: str, port: int,
                             options: _connection.Options = _connection.Options(),
                             private_data: bytes = b"") -> Connection:
    """Connects, and waits for the result. Use `asyncio.wait_for` for a timeout of one's own."""
    started = _connection.start_connecting(host, port, options, private_data)
    return await Connection(started)._until_established()


async def prepare_connection(host: str, port: int,
                             options: _connection.Options = _connection.Options()) -> Connection:
    """Resolves the peer and creates the queues, so that receives can be posted before
    `Connection.establish` connects."""
    return Connection(await _in_thread(_connection.prepare, host, port, options))


class ConnectionListener:
    """Listens for connections, from `listen_connections`. Iterating accepts peers until it is
    closed, and yields each when it is established."""

    def __init__(self, listener: _connection.Listener) -> None:
        self._listener = listener
        self._readiness = _Readiness(listener.fileno())
        self.port = listener.port

    async def next(self) -> Connection:
        """Waits for the next peer. Its connection is prepared: post receives, then `establish` or
        `reject`."""
        while True:
            found = self._take()
            if found is not None:
                return found
            await self._readiness.wait()

    def _take(self) -> Optional[Connection]:
        try:
            return Connection(self._listener.next(0))
        except Elapsed:
            return None

    async def accept(self, private_data: bytes = b"") -> Connection:
        """Accepts peers until one of them is connected. One that is silent after its request keeps
        no other one waiting."""
        while True:
            try:
                return Connection(self._listener.accept(private_data, 0))
            except Elapsed:
                await self._readiness.wait()

    def __aiter__(self) -> AsyncIterator[Connection]:
        return _as_established(self._take, self._readiness.wait, Connection.establish)

    def close(self) -> None:
        """Stops listening. Connections are not affected. May be called twice."""
        if not self._listener._handle.closed:
            self._readiness.stop()
            self._listener.close()

    async def __aenter__(self) -> "ConnectionListener":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def listen_connections(host: str = "", port: int = 0,
                             options: _connection.Options = _connection.Options(),
                             backlog: int = 0) -> ConnectionListener:
    """Listens for connections. An empty host is any local address, and port 0 a free port."""
    return ConnectionListener(_connection.Listener(host, port, options, backlog))
