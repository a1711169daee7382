"""Connections, messages and streams in asyncio."""

import asyncio
import errno
import functools
import gc
import os
import sys
import unittest
from unittest import mock

import weft
from hooks import failing
from weft import aio
from weft.connection import Access, Flags, Options, Queue

SECONDS = 60


class Bounded(unittest.IsolatedAsyncioTestCase):
    """A test that hangs fails."""

    async def soon(self, awaitable):
        return await asyncio.wait_for(awaitable, SECONDS)


class FirstWaits:
    """Takes the place of a coroutine that waits until an object is established: that of the first
    object waits for ever. Its peer is silent."""

    def __init__(self, original):
        self.original, self.first = original, None

    def __get__(self, one, _):
        return self if one is None else functools.partial(self, one)

    async def __call__(self, one, *arguments):
        if self.first is None:
            self.first = one
            await asyncio.Event().wait()
        return await self.original(one, *arguments)


class NextOwner:
    """Has the number of a descriptor that was closed, and a reader in the event loop."""

    def __init__(self, number):
        try:
            os.fstat(number)
            raise unittest.SkipTest(f"descriptor {number} was not closed")
        except OSError:
            pass
        reading, self.writing = os.pipe()
        os.dup2(reading, number)
        if reading != number:
            os.close(reading)
        self.number, self.readable = number, asyncio.Event()
        asyncio.get_running_loop().add_reader(number, self.readable.set)

    async def is_still_watched(self):
        """Whether the event loop still reports when the descriptor becomes readable."""
        os.write(self.writing, b"x")
        try:
            await asyncio.wait_for(self.readable.wait(), SECONDS)
            return True
        except asyncio.TimeoutError:
            return False
        finally:
            asyncio.get_running_loop().remove_reader(self.number)
            os.close(self.number)
            os.close(self.writing)


class Links(Bounded):
    async def pair(self):
        async with await aio.listen_links("127.0.0.1") as listener:
            return await self.soon(asyncio.gather(
                aio.connect_link("localhost", listener.port, b"key"), listener.accept(b"welcome")))

    async def test_ping_pong(self):
        active, passive = await self.pair()
        async with active, passive:
            for turn in range(20):
                await active.send(b"ping", tag=turn)
                got = await self.soon(passive.receive())
                self.assertEqual((got.data, got.tag), (b"ping", turn))
                await passive.send(b"pong")
                self.assertEqual((await self.soon(active.receive())).data, b"pong")
            self.assertEqual(passive.peer_private_data, b"key")
            self.assertEqual(active.peer_private_data, b"welcome")

    async def test_all_messages_until_the_end(self):
        active, passive = await self.pair()

        async def send():
            async with active:
                for number in range(500):
                    await active.send(bytes(10_000), tag=number)

        async def receive():
            return [message.tag async for message in passive]

        _, tags = await self.soon(asyncio.gather(send(), receive()))
        self.assertEqual(tags, list(range(500)))
        with self.assertRaises(EOFError):
            await passive.receive()
        passive.close()

    async def test_sending_waits_while_the_queue_is_full(self):
        active, passive = await self.pair()

        async def send():
            for _ in range(200):
                await active.send(bytes(1 << 20))

        async def receive():
            return sum([len((await passive.receive()).data) for _ in range(200)])

        _, size = await self.soon(asyncio.gather(send(), receive()))
        self.assertEqual(size, 200 << 20)
        active.close()
        passive.close()

    async def test_delivery_is_confirmed(self):
        active, passive = await self.pair()
        await self.soon(active.send(b"x", confirm=True))
        self.assertEqual((await self.soon(passive.receive())).data, b"x")
        passive.close()
        with self.assertRaises(OSError):
            await self.soon(active.send(b"y", confirm=True))
        active.close()

    async def test_a_peer_that_ends_at_once(self):
        active, passive = await self.pair()
        active.close()
        with self.assertRaises((weft.Error, EOFError)):
            await self.soon(passive.receive())
        with self.assertRaises(EOFError):
            await active.receive()
        passive.close()

    async def test_a_cancelled_receive_loses_nothing(self):
        active, passive = await self.pair()
        waiting = asyncio.ensure_future(passive.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        self.assertFalse(passive._changed._waiters)
        await active.send(b"kept")
        self.assertEqual((await self.soon(passive.receive())).data, b"kept")
        active.close()
        passive.close()

    async def test_nothing_listens(self):
        async with await aio.listen_links("127.0.0.1") as listener:
            port = listener.port
        with self.assertRaises(weft.Refused):
            await self.soon(aio.connect_link("127.0.0.1", port))

    async def test_a_listener_that_is_closed_rejects(self):
        listener = await aio.listen_links("127.0.0.1")
        dialing = asyncio.ensure_future(aio.connect_link("127.0.0.1", listener.port))
        while not listener._requests:
            await listener._changed.wait()
        listener.close()
        with self.assertRaises(weft.Refused):
            await self.soon(dialing)

    async def test_a_closed_link_sends_nothing(self):
        active, passive = await self.pair()
        passive.close()
        active.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            await active.send(b"hello")

    async def test_limits_belong_to_the_first(self):
        limits = weft.message.Limits(max_message_bytes=1000)
        async with await aio.listen_links("127.0.0.1", limits=limits) as listener:
            with self.assertRaisesRegex(weft.Error, "first link"):
                await aio.listen_links("127.0.0.1", limits=limits)
            active, passive = await self.soon(asyncio.gather(
                aio.connect_link("127.0.0.1", listener.port), listener.accept()))
            with self.assertRaises(weft.Error):
                await active.send(bytes(1001))
            active.close()
            passive.close()

    async def test_a_silent_peer_delays_no_other(self):
        async with await aio.listen_links("127.0.0.1") as listener:
            connecting = [asyncio.ensure_future(aio.connect_link("127.0.0.1", listener.port))]
            await self.soon(listener._requested())
            with mock.patch.object(aio.Link, "_until_established",
                                   FirstWaits(aio.Link._until_established)) as waits:
                accepted = listener.__aiter__()
                first = asyncio.ensure_future(accepted.__anext__())
                while waits.first is None:
                    await asyncio.sleep(0)
                connecting.append(asyncio.ensure_future(
                    aio.connect_link("127.0.0.1", listener.port, b"second")))
                passive = await self.soon(first)
                self.assertEqual(passive.peer_private_data, b"second")
                await accepted.aclose()
            self.assertIsNone(waits.first._link)
            passive.close()
            for one in await self.soon(asyncio.gather(*connecting, return_exceptions=True)):
                if isinstance(one, aio.Link):
                    one.close()

    async def test_another_thread_adds_its_engine(self):
        class OtherLoop:
            """An event loop that is closed; meanwhile another one gets its engine."""

            def is_closed(self):
                aio._Engine.engines[self] = aio._Engine.engines.pop(self)
                aio._Engine.engines[OpenLoop()] = None
                return True

        class OpenLoop:
            def is_closed(self):
                return False

        before = dict(aio._Engine.engines)
        self.addCleanup(aio._Engine.engines.update, before)
        self.addCleanup(aio._Engine.engines.clear)
        aio._Engine.engines[OtherLoop()] = mock.Mock()
        (await aio.listen_links("127.0.0.1")).close()

    async def test_nothing_is_left(self):
        active, passive = await self.pair()
        self.assertIn(asyncio.get_running_loop(), aio._Engine.engines)
        active.close()
        passive.close()
        await asyncio.sleep(0)
        self.assertNotIn(asyncio.get_running_loop(), aio._Engine.engines)


class Streams(Bounded):
    async def pair(self):
        async with await aio.listen_streams("127.0.0.1") as listener:
            return await self.soon(asyncio.gather(
                aio.connect_stream("127.0.0.1", listener.port), listener.accept()))

    async def test_bytes_go_both_ways(self):
        active, passive = await self.pair()
        async with active, passive:
            await active.send(b"ping")
            self.assertEqual(await self.soon(passive.receive_exactly(4)), b"ping")
            await passive.send(b"pong")
            self.assertEqual(await self.soon(active.receive(100)), b"pong")
            active.finish()
            self.assertEqual(await self.soon(passive.receive(1)), b"")
            with self.assertRaises(EOFError):
                await passive.receive_exactly(1)

    async def test_both_directions_at_once_and_more_than_the_buffers_hold(self):
        active, passive = await self.pair()
        size = 16 << 20

        async def receive(stream):
            done = 0
            while done < size:
                done += len(await stream.receive(1 << 18))
            return done

        got = await self.soon(asyncio.gather(active.send(bytes(size)), passive.send(bytes(size)),
                                             receive(active), receive(passive)))
        self.assertEqual(got[2:], [size, size])
        await asyncio.gather(active.close(), passive.close())

    async def test_a_second_close_leaves_the_next_owner_of_a_descriptor_alone(self):
        active, passive = await self.pair()
        number = active._stream.fileno()
        await active.close()
        await passive.close()
        owner = NextOwner(number)
        await active.close()
        self.assertTrue(await owner.is_still_watched())

    async def test_closing_ends_what_waits(self):
        active, passive = await self.pair()
        receiving = asyncio.ensure_future(active.receive(1))
        await asyncio.sleep(0)
        await active.close()
        with self.assertRaises((ValueError, weft.Error)):
            await self.soon(receiving)
        await passive.close()

    async def test_a_send_waits_beside_bytes_that_nothing_receives(self):
        active, passive = await self.pair()
        await passive.send(b"not received yet")
        sending = asyncio.ensure_future(active.send(bytes(32 << 20)))
        done = 0
        while done < 32 << 20:
            done += len(await self.soon(passive.receive(1 << 20)))
        await self.soon(sending)
        self.assertEqual(await active.receive(100), b"not received yet")
        await asyncio.gather(active.close(0), passive.close(0))

    async def test_a_lost_peer(self):
        active, passive = await self.pair()
        active.abort()
        with self.assertRaises(weft.Lost):
            await self.soon(passive.receive(1))
        await asyncio.gather(active.close(0), passive.close(0))

    async def test_a_peer_that_is_silent_for_too_long(self):
        active, passive = await self.pair()
        for function, call in (("stream_receive_with", lambda: active.receive(1)),
                               ("stream_send", lambda: active.send(b"x"))):
            with failing(function, errno.ETIMEDOUT), self.assertRaises(weft.Timeout):
                await self.soon(call())
        await asyncio.gather(active.close(0), passive.close(0))
        async with await aio.listen_streams("127.0.0.1") as listener:
            with failing("stream_await_connected", errno.ETIMEDOUT):
                with self.assertRaises(weft.Timeout):
                    await self.soon(aio.connect_stream("127.0.0.1", listener.port))

    async def test_nothing_listens(self):
        async with await aio.listen_streams("127.0.0.1") as listener:
            port = listener.port
        with self.assertRaises(weft.Refused):
            await self.soon(aio.connect_stream("127.0.0.1", port))


    async def test_views_and_registered_memory(self):
        active, passive = await self.pair()
        buffer = active.register(bytearray(b"registered"))
        await active.send_registered(buffer, 2)
        view = await self.soon(passive.view())
        self.assertEqual(view, b"gistered")
        view.release()
        passive.consume(8)
        active.finish()
        self.assertEqual(len(await self.soon(passive.view())), 0)
        await asyncio.gather(active.close(), passive.close())

    async def test_a_view_ends_with_its_stream(self):
        active, passive = await self.pair()
        await active.send(b"one two")
        view = await self.soon(passive.view())
        part = view[4:]
        with self.assertRaisesRegex(BufferError, "in use"):
            passive.consume(7)
        await asyncio.gather(active.close(0), passive.close(0))
        self.assertEqual(part, b"two")
        with self.assertRaises(ValueError):
            bytes(view)

    async def test_the_peer_writes_to_a_mapped_buffer(self):
        options = weft.stream.Options(mapped_buffers=1)
        async with await aio.listen_streams("127.0.0.1", options=options) as listener:
            active, passive = await self.soon(asyncio.gather(
                aio.connect_stream("127.0.0.1", listener.port, options), listener.accept()))
        memory = bytearray(1 << 20)
        offset = await self.soon(passive.map_buffer(memory))
        await passive.send(b"!")
        await self.soon(active.receive_exactly(1))
        await self.soon(active.write_mapped(b"x" * (1 << 20), offset))
        await active.send(b"?")
        await self.soon(passive.receive_exactly(1))
        self.assertEqual(memory, b"x" * (1 << 20))
        await self.soon(passive.unmap_buffer(memory))
        await asyncio.gather(active.close(), passive.close())


class Connections(Bounded):
    async def pair(self, options=Options(advertisements=True), posted=0):
        async with await aio.listen_connections("127.0.0.1", options=options) as listener:
            connecting = asyncio.ensure_future(
                aio.connect_connection("localhost", listener.port, options, b"key"))
            passive = await self.soon(listener.next())
            receives = [passive.post_receive(passive.allocate(64)) for _ in range(posted)]
            await self.soon(passive.establish(b"welcome"))
            active = await self.soon(connecting)
        self.addCleanup(active.close)
        self.addCleanup(passive.close)
        return (active, passive, *receives)

    async def test_ping_pong(self):
        active, passive = await self.pair()
        there, back = passive.register(bytearray(64)), active.register(bytearray(64))
        self.assertEqual((active.peer_private_data, passive.peer_private_data),
                         (b"welcome", b"key"))

        async def serve():
            for _ in range(20):
                got = await passive.receive(there)
                await passive.send(there, 0, got.bytes)

        serving = asyncio.ensure_future(serve())
        for turn in range(20):
            answer = asyncio.ensure_future(active.receive(back))
            await self.soon(active.send(active.register(b"ping %d" % turn)))
            got = await self.soon(answer)
            self.assertEqual(back.owner[:got.bytes], b"ping %d" % turn)
        await self.soon(serving)

    async def test_a_receive_is_posted_before_the_connection_is_established(self):
        active, _, receive = await self.pair(posted=1)
        await self.soon(active.send(active.register(b"early")))
        self.assertEqual((await self.soon(receive)).bytes, 5)

    async def test_an_advertised_buffer_is_written_and_read(self):
        active, passive = await self.pair()
        waiting = asyncio.ensure_future(active.await_advertisement())
        shared = passive.register(bytearray(64), Access.REMOTE_READ | Access.REMOTE_WRITE |
                                  Access.REMOTE_ATOMIC)
        passive.advertise(shared, 7)
        remote = await self.soon(waiting)
        self.assertEqual(remote.tag, 7)
        await self.soon(active.write(active.register(b"written"), remote, 16))
        self.assertEqual(shared.owner[16:23], b"written")
        back = active.register(bytearray(8))
        self.assertEqual((await self.soon(active.read(back, remote, 16, size=7))).bytes, 7)
        self.assertEqual(back.owner[:7], b"written")
        at = -remote.address % 8
        await self.soon(active.fetch_and_add(back, remote, 5, at))
        await self.soon(active.compare_and_swap(back, remote, 5, 9, at))
        self.assertEqual(int.from_bytes(back.owner, sys.byteorder), 5)

    async def test_immediates(self):
        active, passive, first, second = await self.pair(posted=2)
        text = active.register(b"hello")
        place = passive.allocate(64, Access.REMOTE_WRITE)
        await self.soon(active.send_with_immediate(text, 1))
        await self.soon(active.write_with_immediate(text, place.remote, 2))
        self.assertEqual([one.immediate for one in await self.soon(asyncio.gather(first, second))],
                         [1, 2])

    async def test_more_requests_than_the_queue_holds(self):
        active, passive = await self.pair(Options(queue_depth=4, advertisements=True))
        shared = passive.register(bytearray(800), Access.REMOTE_WRITE)
        numbers = active.register(bytes(range(100)) * 8)
        outcomes = await self.soon(asyncio.gather(*(
            active.write(numbers, shared.remote, 8 * one, 8 * one, 8) for one in range(100))))
        self.assertEqual(len({one.id for one in outcomes}), 100)
        self.assertEqual(bytes(shared.owner), bytes(range(100)) * 8)

    async def test_a_cancelled_receive_stays_posted_and_keeps_its_buffer(self):
        active, passive = await self.pair()
        waiting = asyncio.ensure_future(passive.receive(passive.allocate(8)))
        await asyncio.sleep(0)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        gc.collect()
        later = asyncio.ensure_future(passive.receive(passive.allocate(8)))
        await self.soon(active.send(active.register(b"first")))
        await self.soon(active.send(active.register(b"x")))
        self.assertEqual((await self.soon(later)).bytes, 1)

    async def test_the_end_reaches_the_peer_and_its_requests(self):
        active, passive = await self.pair()
        receiving = asyncio.ensure_future(passive.receive(passive.allocate(8)))
        ending = asyncio.ensure_future(passive.await_disconnect())
        await asyncio.sleep(0)
        active.disconnect()
        await self.soon(ending)
        with self.assertRaises(weft.Error):
            await self.soon(receiving)
        with self.assertRaises(weft.NotConnected):
            await self.soon(passive.await_advertisement())

    async def test_closing_ends_what_waits(self):
        active, passive = await self.pair()
        waiting = [asyncio.ensure_future(one) for one in (
            passive.receive(passive.allocate(8)), passive.await_advertisement(),
            passive.await_disconnect())]
        await asyncio.sleep(0)
        passive.close()
        kinds = [type(one) for one in await self.soon(
            asyncio.gather(*waiting, return_exceptions=True))]
        self.assertEqual(kinds, [weft.NotConnected, ValueError, ValueError])
        with self.assertRaises(ValueError):
            await active.send(active.allocate(8), flags=Flags.UNSIGNALED)

    async def test_closing_ends_an_attempt(self):
        async with await aio.listen_connections("127.0.0.1") as listener:
            active = await aio.prepare_connection("127.0.0.1", listener.port)
            establishing = asyncio.ensure_future(active.establish())
            passive = await self.soon(listener.next())
            active.close()
            with self.assertRaises(ValueError):
                await self.soon(establishing)
            passive.close()

    async def test_a_second_close_leaves_the_next_owner_of_a_descriptor_alone(self):
        active, _ = await self.pair()
        number = active._connection.fileno(Queue.RECEIVES)
        active.close()
        owner = NextOwner(number)
        active.close()
        self.assertTrue(await owner.is_still_watched())

    async def test_peers_are_rejected_or_leave(self):
        async with await aio.listen_connections("127.0.0.1") as listener:
            port = listener.port
            prepared = await self.soon(aio.prepare_connection("127.0.0.1", port))
            connecting = asyncio.ensure_future(prepared.establish())
            (await self.soon(listener.next())).reject()
            with self.assertRaises(weft.Refused):
                await self.soon(connecting)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(aio.connect_connection("127.0.0.1", port), 0.01)
        with self.assertRaises(weft.Refused):
            await self.soon(aio.connect_connection("127.0.0.1", port))

    async def test_a_peer_that_does_not_answer(self):
        async with await aio.listen_connections("127.0.0.1") as listener:
            with failing("connection_await_established", errno.ETIMEDOUT):
                with self.assertRaises(weft.Timeout):
                    await self.soon(aio.connect_connection("127.0.0.1", listener.port))

    async def test_an_unknown_host_is_an_error_of_the_package(self):
        with self.assertRaises(weft.Error) as failed:
            await aio.connect_stream("no-such-host.invalid", 7174)
        self.assertEqual(failed.exception.errno, errno.ENXIO)

    async def test_a_silent_peer_delays_no_other(self):
        async with await aio.listen_connections("127.0.0.1") as listener:
            with mock.patch.object(aio.Connection, "establish",
                                   FirstWaits(aio.Connection.establish)) as waits:
                accepted = listener.__aiter__()
                first = asyncio.ensure_future(accepted.__anext__())
                connecting = [asyncio.ensure_future(
                    aio.connect_connection("127.0.0.1", listener.port))]
                while waits.first is None:
                    await asyncio.sleep(0)
                connecting.append(asyncio.ensure_future(
                    aio.connect_connection("127.0.0.1", listener.port, private_data=b"second")))
                passive = await self.soon(first)
                self.assertEqual(passive.peer_private_data, b"second")
                await accepted.aclose()
            self.assertTrue(waits.first._connection._handle.closed)
            passive.close()
            for one in await self.soon(asyncio.gather(*connecting, return_exceptions=True)):
                if isinstance(one, aio.Connection):
                    one.close()

    async def test_a_listener_is_iterated_until_it_is_closed(self):
        listener = await aio.listen_connections("127.0.0.1")

        async def serve():
            async for peer in listener:
                peer.close()
                listener.close()

        serving = asyncio.ensure_future(serve())
        (await self.soon(aio.connect_connection("127.0.0.1", listener.port))).close()
        await self.soon(serving)


if __name__ == "__main__":
    unittest.main(verbosity=2)
