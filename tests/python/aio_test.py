"""Messages and streams in asyncio."""

import asyncio
import unittest

import weft
from weft import aio

SECONDS = 60


class Bounded(unittest.IsolatedAsyncioTestCase):
    """A test that hangs fails."""

    async def soon(self, awaitable):
        return await asyncio.wait_for(awaitable, SECONDS)


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

    async def test_nothing_listens(self):
        async with await aio.listen_streams("127.0.0.1") as listener:
            port = listener.port
        with self.assertRaises(weft.Refused):
            await self.soon(aio.connect_stream("127.0.0.1", port))


if __name__ == "__main__":
    unittest.main(verbosity=2)
