"""Messages and streams for asyncio.

    async with await weft.aio.connect_link("192.0.2.1", 7174) as link:
        await link.send(b"hello")
        answer = await link.receive()

All calls belong to the thread of the event loop that the object was made in. Cancelling a receive
loses nothing; a cancelled send of a stream may have sent a part.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import ipaddress
import socket
from typing import Any, AsyncIterator, Callable, Deque, Dict, List, Optional, Set

from . import message as _message
from . import stream as _stream
from ._memory import Memory
from .errors import Error, NotConnected, Timeout, WouldBlock, error_of
from .message import EndedBy, Handlers, Limits, Message, Sent

__all__ = ["Link", "LinkListener", "Stream", "StreamListener", "connect_link", "connect_stream",
           "listen_links", "listen_streams"]


async def _address_of(host: str) -> str:
    """The first address of a name, found without blocking the event loop."""
    try:
        ipaddress.ip_address(host.split("%")[0])
        return host
    except ValueError:
        pass
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


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
            # Those of event loops that were closed first.
            for old in [one for one in cls.engines if one.is_closed()]:
                cls.engines.pop(old).messages.close()
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
        self._waiters: List["asyncio.Future[None]"] = []

    def set(self, *_: Any) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


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
    """Listens for links, from `listen_links`. Iterating accepts peers until it is closed."""

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
        while not self._requests:
            if not self._open:
                raise ValueError("the listener is closed")
            await self._changed.wait()
        link = Link(self._engine)
        try:
            link._link = self._requests.popleft().accept(link._handlers(), private_data, keepalive)
        except BaseException:
            link.close()
            raise
        return await link._until_established()

    async def __aiter__(self) -> AsyncIterator[Link]:
        while True:
            try:
                link = await self.accept()
            except ValueError:
                return
            except Error:
                continue  # this peer has left; others come
            yield link

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
    """Waits until a descriptor is readable; several coroutines may wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._signal = _Signal()
        self._loop = asyncio.get_running_loop()

    def _on_readable(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops watching, and wakes all."""
        self._loop.remove_reader(self._descriptor)
        self._signal.set()

    async def wait(self) -> None:
        self._loop.add_reader(self._descriptor, self._on_readable)
        await self._signal.wait()


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
            except Timeout:
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

    async def send(self, data: Any) -> None:
        """Sends all bytes; waits while the buffer of the stream is full."""
        with Memory(data) as memory:
            done = 0
            while done < memory.size:
                try:
                    done += self._stream._send(memory, done, 0)
                except Timeout:
                    await self._room.wait()

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
        return await asyncio.get_running_loop().run_in_executor(None, self._stream.close, linger)

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
            except Timeout:
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
        if self._listener._handle:
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
