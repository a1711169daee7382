"""Streams from Python."""

import errno
import select
import struct
import threading
import unittest

import weft
from hooks import hook
from weft.stream import (EventQueue, EventType, Listener, Options, ReceiveFlags, Variant, connect,
                         start_connecting)

SECONDS = 60


class Streams(unittest.TestCase):
    def setUp(self):
        with Listener("127.0.0.1") as listener:
            self.active = start_connecting("127.0.0.1", listener.port,
                                           Options(private_data=b"key", mapped_buffers=1))
            self.passive = listener.accept(SECONDS)
            self.active.await_connected(SECONDS)
        self.addCleanup(self.active.close, 0)
        self.addCleanup(self.passive.close, 0)

    def test_bytes_go_both_ways(self):
        self.active.send_all(b"ping", SECONDS)
        self.assertEqual(self.passive.receive(100, SECONDS), b"ping")
        self.passive.send_all(bytearray(b"pong"), SECONDS)
        room = bytearray(10)
        self.assertEqual(self.active.receive_into(room, SECONDS), 4)
        self.assertEqual(room[:4], b"pong")

    def test_more_than_the_buffers_hold(self):
        data = bytes(range(256)) * (1 << 15)
        sender = threading.Thread(target=lambda: (self.active.send_all(data),
                                                  self.active.finish()))
        sender.start()
        got = bytearray()
        while True:
            piece = self.passive.receive(1 << 20, SECONDS)
            if not piece:
                break
            got += piece
        sender.join(SECONDS)
        self.assertEqual(bytes(got), data)
        self.assertEqual(self.passive.receive(1, SECONDS), b"")

    def test_a_send_that_does_not_wait_is_short(self):
        data = bytes(64 << 20)
        sent = self.active.send(data, 0)
        self.assertTrue(0 < sent < len(data))
        with self.assertRaises(weft.Timeout):
            while True:
                self.active.send(data, 0)

    def test_a_view_needs_no_copy(self):
        self.active.send_all(b"one two", SECONDS)
        view = self.passive.view(SECONDS)
        self.assertEqual(view, b"one two")
        self.assertTrue(view.readonly)
        self.passive.consume(4)
        with self.assertRaises(ValueError):
            bytes(view)
        rest = self.passive.view(SECONDS)
        self.assertEqual(rest, b"two")
        with self.assertRaises(weft.Error):
            self.passive.consume(4)
        self.assertEqual(self.passive.view(SECONDS), b"two")
        self.passive.consume(3)
        with self.assertRaises(weft.Timeout):
            self.passive.view(0.01)
        self.active.finish()
        self.assertEqual(len(self.passive.view(SECONDS)), 0)

    def test_bytes_are_not_consumed_while_a_part_of_their_view_is_in_use(self):
        self.active.send_all(b"one two", SECONDS)
        part = self.passive.view(SECONDS)[:3]
        for attempt in (lambda: self.passive.consume(7), lambda: self.passive.view(SECONDS)):
            with self.assertRaisesRegex(BufferError, "in use"):
                attempt()
        self.assertEqual(part, b"one")
        part.release()
        self.passive.consume(4)
        self.assertEqual(self.passive.view(SECONDS), b"two")

    def test_a_closed_stream_is_freed_with_the_last_view(self):
        freed = threading.Event()
        self.active.send_all(b"one two", SECONDS)
        view = self.passive.view(SECONDS)
        part, user = view[4:], struct.iter_unpack("B", view)
        with hook("stream_free", freed.set):
            self.passive.close(0)
            self.assertEqual(part, b"two")
            part.release()
            self.assertEqual(next(user), (ord("o"),))
            self.assertFalse(freed.is_set())
            del user, view
            self.assertTrue(freed.is_set())

    def test_a_descriptor_reports_room(self):
        data = bytes(16 << 20)
        room = self.active.send_fileno()
        self.assertLess(self.active.send(data, 0), len(data))
        self.passive.send_all(b"something to receive", SECONDS)
        while not select.select([room], [], [], 0)[0]:
            try:
                self.passive.receive_into(bytearray(1 << 20), 0.01)
            except weft.Timeout:
                continue
        self.assertGreater(self.active.send(b"x", SECONDS), 0)

    def test_waiting_ends_at_the_timeout(self):
        with self.assertRaises(TimeoutError):
            self.active.receive(1, 0.01)

    def test_an_aborted_stream_is_lost(self):
        self.active.abort()
        with self.assertRaises(ConnectionResetError) as caught:
            self.passive.receive(1, SECONDS)
        self.assertIsInstance(caught.exception, weft.Lost)

    def test_private_data_and_addresses(self):
        self.assertEqual(self.passive.peer_private_data, b"key")
        self.assertEqual(self.active.peer_address, self.passive.local_address)

    def test_closing_reports_that_everything_has_arrived(self):
        self.active.send_all(b"x")
        self.assertTrue(self.active.close())
        self.assertEqual(self.passive.receive(10, SECONDS), b"x")
        with self.assertRaisesRegex(ValueError, "closed"):
            self.active.send(b"x")

    def test_read_only_memory_is_not_received_into(self):
        with self.assertRaisesRegex(BufferError, "read-only"):
            self.active.receive_into(b"constant")

    def test_a_request_is_accepted_or_rejected(self):
        with Listener("127.0.0.1", options=Options(private_data=b"default")) as listener:
            refused = start_connecting("127.0.0.1", listener.port, Options(private_data=b"no"))
            request = listener.next(SECONDS)
            self.assertEqual(request.private_data, b"no")
            self.assertRegex(request.peer_address, r"127\.0\.0\.1:\d+")
            request.reject()
            with self.assertRaises(ValueError):
                request.accept()
            with self.assertRaises(weft.Refused):
                refused.await_connected(SECONDS)
            for options, answer in ((None, b"default"),
                                    (Options(private_data=b"own", send_queue=8, receive_queue=8,
                                             spin_us=-1, linger=0.1), b"own")):
                active = start_connecting("127.0.0.1", listener.port)
                passive = listener.next(SECONDS).accept(options)
                active.await_connected(SECONDS)
                passive.await_connected(SECONDS)
                self.assertEqual(active.peer_private_data, answer)
                active.send_all(b"hello", SECONDS)
                self.assertEqual(passive.receive(5, SECONDS), b"hello")
                self.assertEqual(active.statistics["bytes_sent"], 5)
                active.close()
                passive.close()

    def test_receives_peek_and_wait_for_all(self):
        self.active.send_all(b"ab", SECONDS)
        self.assertEqual(self.passive.receive(9, SECONDS, ReceiveFlags.PEEK), b"ab")
        self.assertEqual(self.passive.receive(4, 0.001, ReceiveFlags.WAIT_ALL), b"ab")
        late = threading.Thread(target=self.active.send_all, args=(b"cdef",))
        late.start()
        self.assertEqual(self.passive.receive(4, SECONDS, ReceiveFlags.WAIT_ALL), b"cdef")
        late.join(SECONDS)
        self.active.send_all(b"gh", SECONDS)
        self.active.finish()
        self.assertEqual(self.passive.receive(4, SECONDS, ReceiveFlags.WAIT_ALL), b"gh")
        self.assertEqual(self.passive.receive(4, SECONDS, ReceiveFlags.WAIT_ALL), b"")

    def test_bytes_before_a_failure_are_received_first(self):
        self.active.send_all(b"abc", SECONDS)
        self.passive.receive(3, SECONDS, ReceiveFlags.PEEK | ReceiveFlags.WAIT_ALL)
        self.active.abort()
        self.assertEqual(self.passive.receive(9, SECONDS, ReceiveFlags.WAIT_ALL), b"abc")
        with self.assertRaises(weft.Lost):
            self.passive.receive(9, SECONDS, ReceiveFlags.WAIT_ALL)

    def test_registered_memory_is_sent_without_a_copy(self):
        memory = bytearray(b"registered")
        buffer = self.active.register(memory)
        self.assertEqual(self.active.send_registered(buffer, 2, timeout=SECONDS), 8)
        memory[:] = bytes(10)
        self.assertEqual(self.passive.receive(8, SECONDS, ReceiveFlags.WAIT_ALL), b"gistered")
        with self.assertRaises(IndexError):
            self.active.send_registered(buffer, 2, 9)
        buffer.close()
        memory.append(1)

    def test_the_peer_writes_to_a_mapped_buffer(self):
        memory = bytearray(16)
        self.assertEqual(self.passive.map_buffer(memory, 4096, SECONDS), 4096)
        with self.assertRaises(BufferError):
            memory.append(1)
        with self.assertRaises(weft.Error) as caught:
            self.passive.map_buffer(bytearray(8))
        self.assertEqual(caught.exception.errno, errno.ENOBUFS)
        self.passive.send_all(b"!", SECONDS)
        self.active.receive(1, SECONDS)
        self.assertEqual(self.active.write_mapped(b"mapped", 4098, SECONDS), 6)
        with self.assertRaises(weft.Error) as caught:
            self.active.write_mapped(b"beyond", 4096 + 12)
        self.assertEqual(caught.exception.errno, errno.EFAULT)
        self.active.send_all(b"?", SECONDS)
        self.passive.receive(1, SECONDS)
        self.assertEqual(memory[2:8], b"mapped")
        self.passive.unmap_buffer(memory, SECONDS)
        memory.append(1)
        with self.assertRaises(ValueError):
            self.passive.unmap_buffer(memory)
        with self.assertRaisesRegex(BufferError, "read-only"):
            self.passive.map_buffer(b"constant")
        with self.assertRaises(weft.Error):
            start_connecting("127.0.0.1", 1, Options(mapped_buffers=256))

    def test_one_queue_has_the_events_of_listeners_and_streams(self):
        with EventQueue() as events, Listener("127.0.0.1", options=Options(
                private_data=b"welcome", variant=Variant.WRITE_AND_SEND)) as listener:
            with self.assertRaises(weft.Timeout):
                events.next(0)
            events.attach(listener)
            active = start_connecting("127.0.0.1", listener.port)
            events.attach(active)
            self.assertTrue(select.select([events], [], [], SECONDS)[0])
            event = events.next(SECONDS)
            self.assertEqual(event.type, EventType.CONNECT_REQUEST)
            self.assertIs(event.source, listener)
            passive = event.request.accept()
            events.attach(passive)
            found = [events.next(SECONDS) for _ in range(2)]
            self.assertEqual([one.type for one in found], [EventType.CONNECTED] * 2)
            self.assertEqual({one.source for one in found}, {active, passive})
            self.assertEqual(active.peer_private_data, b"welcome")
            active.finish()
            event = events.next(SECONDS)
            self.assertEqual((event.type, event.error_number), (EventType.SHUTDOWN, 0))
            self.assertIs(event.source, passive)
            events.detach(active)
            passive.close()
            active.close()
            with self.assertRaises(weft.Timeout):
                events.next(0)

    def test_numbers_are_not_cut(self):
        for port in (70000, -1):
            with self.assertRaisesRegex(ValueError, f"{port}"):
                connect("127.0.0.1", port)
            with self.assertRaisesRegex(ValueError, f"{port}"):
                Listener("127.0.0.1", port)
        with self.assertRaises(TypeError):
            connect("127.0.0.1", "7174")
        with self.assertRaisesRegex(OverflowError, "send_queue"):
            Listener("127.0.0.1", 0, Options(send_queue=1 << 40))

    def test_nothing_listens(self):
        with Listener("127.0.0.1") as listener:
            port = listener.port
        with self.assertRaises(weft.Refused):
            connect("127.0.0.1", port)


if __name__ == "__main__":
    unittest.main(verbosity=2)
