"""Connections from Python: buffers, requests, outcomes, errors."""

import concurrent.futures
import gc
import errno
import select
import socket
import struct
import sys
import threading
import unittest

import weft
from weft.connection import (Access, Flags, Listener, Opcode, Options, Queue, RemoteBuffer, connect,
                             prepare, start_connecting)

try:
    import numpy
except ImportError:
    numpy = None

SECONDS = 60


def pair(options=Options(), prepare=lambda passive: None, **more):
    """Two ends of one connection. `prepare` is called with the passive one before it accepts."""
    with Listener("127.0.0.1", options=options) as listener:
        found, failures = [], []

        def dial():
            try:
                found.append(connect("127.0.0.1", listener.port, options, timeout=SECONDS, **more))
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=dial)
        thread.start()
        passive = listener.next(SECONDS)
        prepare(passive)
        passive.establish(b"welcome", SECONDS)
        thread.join(SECONDS)
        if failures:
            raise failures[0]
    return found[0], passive


def silent_peer(port):
    """A client of TCP that asks for a connection which the first FPDU establishes (RFC 6581), and
    sends none."""
    peer = socket.create_connection(("127.0.0.1", port), SECONDS)
    crc, enhanced, revision = 0x40, 0x10, 2
    peer_to_peer, rtr_write, depth = 0x8000, 0x8000, 8
    peer.sendall(b"MPA ID Req Frame" + struct.pack(">BBHHH", crc | enhanced, revision, 4,
                                                   peer_to_peer | depth, rtr_write | depth))
    return peer


class Requests(unittest.TestCase):
    def setUp(self):
        self.active, self.passive = pair(Options(advertisements=True), private_data=b"hello")
        self.addCleanup(self.active.close)
        self.addCleanup(self.passive.close)

    def test_ping_pong(self):
        there = self.passive.register(bytearray(64))
        back = self.active.register(bytearray(64))
        for turn in range(20):
            ping = self.active.register(b"ping %d" % turn)
            self.passive.post_receive(there)
            self.active.post_receive(back)
            self.active.post_send(ping)
            [got] = self.passive.await_receives(timeout=SECONDS)
            self.assertEqual(there.owner[:got.bytes], b"ping %d" % turn)
            self.passive.post_send(there, 0, got.bytes)
            self.passive.await_sends(timeout=SECONDS)
            [got] = self.active.await_receives(timeout=SECONDS)
            self.assertEqual(bytes(back.view[:got.bytes]), b"ping %d" % turn)
            self.active.await_sends(timeout=SECONDS)
            ping.close()

    def test_an_advertised_buffer_is_written_and_read(self):
        shared = self.passive.allocate(4096, Access.REMOTE_READ | Access.REMOTE_WRITE)
        self.passive.advertise(shared, tag=7)
        remote = self.active.await_advertisement(SECONDS)
        self.assertEqual((remote.tag, remote.size), (7, 4096))
        self.active.post_write(self.active.register(b"written"), remote, remote_offset=100)
        self.active.await_sends(timeout=SECONDS)
        self.assertEqual(bytes(shared.view[100:107]), b"written")
        back = self.active.allocate(7)
        self.active.post_read(back, remote, remote_offset=100)
        self.active.await_sends(timeout=SECONDS)
        self.assertEqual(bytes(back.view), b"written")

    def test_an_advertised_buffer_is_kept_by_the_connection(self):
        self.passive.advertise(self.passive.register(b"kept"[:], Access.REMOTE_READ))
        gc.collect()
        back = self.active.allocate(4)
        self.active.post_read(back, self.active.await_advertisement(SECONDS))
        self.active.await_sends(timeout=SECONDS)
        self.assertEqual(bytes(back.view), b"kept")

    def test_the_form_in_bytes_of_a_remote_buffer(self):
        remote = self.passive.allocate(64, Access.REMOTE_READ).remote
        self.assertEqual(RemoteBuffer.unpack(remote.pack()), remote)
        with self.assertRaises(ValueError):
            RemoteBuffer.unpack(b"short")

    @unittest.skipUnless(numpy, "needs the package python3-numpy")
    def test_immediates_arrive_with_messages_and_writes(self):
        into = self.passive.register(bytearray(64), Access.REMOTE_WRITE)
        text = self.active.register(b"hello")
        for _ in range(3):
            self.passive.post_receive(into)
        self.active.post_send_with_immediate(text, 0xFFFF0001)
        self.active.post_write_with_immediate(text, into.remote, 7, remote_offset=32)
        self.active.post_send(text)
        sends = self.active.await_sends(3, SECONDS)
        self.assertEqual([one.opcode for one in sends], [Opcode.SEND, Opcode.WRITE, Opcode.SEND])
        by_send, by_write, plain = self.passive.await_receives(3, SECONDS)
        self.assertEqual((by_send.immediate, by_send.opcode), (0xFFFF0001, Opcode.RECEIVE))
        self.assertEqual((by_write.immediate, by_write.opcode), (7, Opcode.RECEIVE_OF_WRITE))
        self.assertEqual(into.owner[32:37], b"hello")
        self.assertIsNone(plain.immediate)

    def test_atomics_change_eight_bytes(self):
        counter = self.passive.register(bytearray(16),
                                        Access.REMOTE_READ | Access.REMOTE_WRITE
                                        | Access.REMOTE_ATOMIC)
        before = self.active.register(bytearray(8))
        offset = -counter.remote.address % 8
        self.active.post_fetch_and_add(before, counter.remote, 5, remote_offset=offset)
        self.active.post_compare_and_swap(before, counter.remote, 5, 9, remote_offset=offset)
        kinds = [one.opcode for one in self.active.await_sends(2, SECONDS)]
        self.assertEqual(kinds, [Opcode.FETCH_AND_ADD, Opcode.COMPARE_AND_SWAP])
        self.assertEqual(int.from_bytes(before.owner, sys.byteorder), 5)
        found = int.from_bytes(counter.owner[offset:offset + 8], sys.byteorder)
        self.assertEqual(found, 9)

    def test_a_negative_number_is_added(self):
        counter = self.passive.register(bytearray(8 * [0] + 8 * [255]), Access.REMOTE_ATOMIC
                                        | Access.REMOTE_WRITE)
        before = self.active.register(bytearray(8))
        offset = -counter.remote.address % 8
        self.active.post_fetch_and_add(before, counter.remote, -2**63, remote_offset=offset)
        self.active.post_fetch_and_add(before, counter.remote, 2**64 - 1, remote_offset=offset)
        self.active.await_sends(2, SECONDS)
        start = int.from_bytes(bytes(8 * [0] + 8 * [255])[offset:offset + 8], sys.byteorder)
        self.assertEqual(int.from_bytes(counter.owner[offset:offset + 8], sys.byteorder),
                         (start - 2**63 - 1) % 2**64)

    def test_numbers_that_do_not_fit_are_refused(self):
        buffer = self.active.register(bytearray(8))
        there = self.passive.register(bytearray(8), Access.REMOTE_WRITE).remote
        beyond = RemoteBuffer(2**64 + there.address, there.size, there.rkey)
        post = self.active
        for call in (lambda: post.post_send_with_immediate(buffer, 2**32 + 5),
                     lambda: post.post_write_with_immediate(buffer, there, -1),
                     lambda: post.post_send_with_invalidate(buffer, 2**32 + there.rkey),
                     lambda: post.post_write(buffer, beyond),
                     lambda: post.post_write(buffer, there, 2**64),
                     lambda: post.post_fetch_and_add(buffer, there, 2**64),
                     lambda: post.post_fetch_and_add(buffer, there, -2**63 - 1),
                     lambda: post.advertise(buffer, 2**32)):
            with self.assertRaises(OverflowError):
                call()
        buffer.close()  # nothing was posted

    def test_what_is_no_window_is_not_invalidated(self):
        into = self.passive.register(bytearray(64), Access.REMOTE_READ)
        text = self.active.register(b"hello")
        self.passive.post_receive(into)
        self.active.post_send_with_invalidate(text, into.remote.rkey)
        with self.assertRaises(weft.Error):
            self.active.await_sends(timeout=SECONDS)

    def test_arrays_of_numpy_are_regions(self):
        sent = numpy.arange(1000, dtype=numpy.float64)
        got = numpy.zeros_like(sent)
        self.passive.post_receive(self.passive.register(got))
        self.active.post_send(self.active.register(sent))
        self.passive.await_receives(timeout=SECONDS)
        self.assertTrue((sent == got).all())
        with self.assertRaises((ValueError, BufferError)):
            self.active.register(sent[::2])

    def test_a_request_keeps_the_memory_that_it_uses(self):
        there = self.passive.allocate(100_000)
        self.passive.post_receive(there)
        self.active.post_send(self.active.register(bytearray(b"x" * 100_000)))
        gc.collect()
        self.passive.await_receives(timeout=SECONDS)
        self.assertEqual(bytes(there.view), b"x" * 100_000)

    def test_a_buffer_in_use_is_not_closed(self):
        buffer = self.passive.register(bytearray(8))
        self.passive.post_receive(buffer)
        with self.assertRaisesRegex(BufferError, "await its outcome"):
            buffer.close()
        with self.assertRaises(BufferError):
            buffer.owner.append(1)
        self.passive.close()
        buffer.close()
        buffer.owner.append(1)

    def test_read_only_memory_is_not_changed_by_the_peer(self):
        for access in (Access.REMOTE_WRITE, Access.REMOTE_ATOMIC):
            with self.assertRaisesRegex(BufferError, "read-only"):
                self.active.register(bytes(8), access)
        self.active.register(bytes(8), Access.REMOTE_READ)

    def test_read_only_memory_is_not_received_into(self):
        constant = self.passive.register(b"constant")
        with self.assertRaisesRegex(BufferError, "read-only"):
            self.passive.post_receive(constant)
        with self.assertRaisesRegex(BufferError, "read-only"):
            self.passive.register(b"constant", Access.REMOTE_WRITE)

    def test_a_part_outside_of_the_buffer_is_refused(self):
        buffer = self.active.allocate(16)
        with self.assertRaises(IndexError):
            self.active.post_send(buffer, offset=17)
        with self.assertRaises(weft.Error) as caught:
            self.active.post_send(buffer, offset=8, size=9)
        self.assertEqual(caught.exception.errno, errno.ERANGE)
        self.assertTrue(caught.exception.strerror)

    def test_waiting_ends_at_the_timeout(self):
        self.passive.post_receive(self.passive.allocate(8))
        self.assertEqual(self.passive.await_outcomes(Queue.RECEIVES, timeout=0.01), [])
        with self.assertRaises(weft.Timeout):
            self.passive.await_receives(timeout=0)
        with self.assertRaises(TimeoutError):
            self.active.await_advertisement(0)

    def test_waiting_ends_where_nothing_is_posted(self):
        self.assertEqual(self.active.await_outcomes(Queue.SENDS), [])

    def test_unsignaled_requests_have_no_outcome(self):
        buffer = self.active.register(b"12345678")
        for _ in range(3):
            self.passive.post_receive(self.passive.allocate(8))
        self.active.post_send(buffer, flags=Flags.UNSIGNALED)
        self.active.post_send(buffer, flags=Flags.UNSIGNALED)
        last = self.active.post_send(buffer)
        [outcome] = self.active.await_sends(timeout=SECONDS)
        self.assertEqual(outcome.id, last)
        buffer.close()

    def test_a_failed_request_is_an_outcome_and_an_exception(self):
        self.passive.post_receive(self.passive.allocate(8))
        self.active.close()
        [outcome] = self.passive.await_outcomes(Queue.RECEIVES, timeout=SECONDS)
        self.assertFalse(outcome.ok)
        self.assertTrue(outcome.status_text)
        with self.assertRaisesRegex(weft.Error, "has failed"):
            outcome.check()

    def test_a_descriptor_is_readable_when_there_is_an_outcome(self):
        self.passive.post_receive(self.passive.allocate(8))
        self.assertEqual(self.passive.await_outcomes(Queue.RECEIVES, timeout=0), [])
        poll = select.poll()
        poll.register(self.passive.fileno(Queue.RECEIVES), select.POLLIN)
        self.active.post_send(self.active.register(b"x"))
        found = []
        while not found:
            self.assertTrue(poll.poll(SECONDS * 1000))
            found = self.passive.await_outcomes(Queue.RECEIVES, timeout=0)
        self.assertEqual(found[0].bytes, 1)

    def test_private_data_goes_both_ways(self):
        self.assertEqual(self.active.peer_private_data, b"welcome")
        self.assertEqual(self.passive.peer_private_data, b"hello")
        self.assertIn("127.0.0.1:", self.active.peer_address)
        self.assertEqual(self.active.peer_address, self.passive.local_address)

    def test_the_end_reaches_the_peer(self):
        with self.assertRaises(weft.Timeout):
            self.passive.await_disconnect(0)
        self.active.disconnect()
        self.passive.await_disconnect(SECONDS)
        self.passive.post_send(self.passive.allocate(1))
        with self.assertRaisesRegex(weft.Error, "Flushed"):
            self.passive.await_sends(timeout=SECONDS)

    def test_a_closed_connection_is_not_used(self):
        self.active.close()
        self.active.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.active.disconnect()


class Establishing(unittest.TestCase):
    def test_nothing_listens(self):
        with Listener("127.0.0.1") as listener:
            port = listener.port
        with self.assertRaises(ConnectionRefusedError) as caught:
            connect("127.0.0.1", port, timeout=SECONDS)
        self.assertIsInstance(caught.exception, weft.Refused)
        self.assertTrue(caught.exception.strerror)

    def test_the_peer_rejects(self):
        with Listener("127.0.0.1") as listener:
            refusing = threading.Thread(target=lambda: listener.next(SECONDS).reject(b"full"))
            refusing.start()
            with self.assertRaises(weft.Refused):
                connect("127.0.0.1", listener.port, timeout=SECONDS)
            refusing.join(SECONDS)

    def test_no_peer_comes(self):
        with Listener("127.0.0.1") as listener:
            with self.assertRaises(weft.Timeout):
                listener.next(0)

    def test_a_silent_peer_keeps_no_other_one_waiting(self):
        with Listener("127.0.0.1") as listener:
            with silent_peer(listener.port):
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    dialled = pool.submit(connect, "127.0.0.1", listener.port, timeout=SECONDS,
                                          private_data=b"hello")
                    with listener.accept(b"welcome", SECONDS), dialled.result(SECONDS) as active:
                        self.assertEqual(active.peer_private_data[:7], b"welcome")

    def test_a_receive_is_posted_before_the_connection_is_established(self):
        room = bytearray(5)
        active, passive = pair(prepare=lambda one: one.post_receive(one.register(room)))
        with active, passive:
            active.post_send(active.register(b"early"))
            passive.await_receives(timeout=SECONDS)
        self.assertEqual(room, b"early")

    def test_establishing_without_waiting(self):
        with Listener("127.0.0.1") as listener:
            active = start_connecting("localhost", listener.port, private_data=b"key")
            with self.assertRaises(weft.Timeout):
                active.await_established(0)
            with self.assertRaises(weft.NotConnected):
                active.disconnect()
            passive = None
            pending = {active}
            while pending:
                select.select([one.establishing_fileno() for one in pending] + [listener], [], [],
                              SECONDS)
                for one in list(pending):
                    try:
                        one.await_established(0)
                        pending.remove(one)
                    except weft.Timeout:
                        continue
                if passive is None:
                    try:
                        passive = listener.next(0)
                        passive.start_establishing(b"welcome")
                        pending.add(passive)
                    except weft.Timeout:
                        continue
        with active, passive:
            self.assertEqual(active.peer_private_data, b"welcome")
            active.disconnect()
            poll = select.poll()
            poll.register(passive.disconnect_fileno(), select.POLLIN)
            self.assertTrue(poll.poll(SECONDS * 1000))
            passive.await_disconnect(SECONDS)

    def test_connections_share_a_domain(self):
        first = pair()
        room = bytearray(5)
        with Listener("127.0.0.1") as listener:
            active = prepare("127.0.0.1", listener.port, Options(domain_of=first[0]))
            active.start_establishing()
            passive = listener.next(SECONDS)
            passive.post_receive(passive.register(room))
            passive.establish()
            active.await_established(SECONDS)
        with first[0], first[1], active, passive:
            active.post_send(first[0].register(b"hello"))
            active.await_sends(timeout=SECONDS)
            passive.await_receives(timeout=SECONDS)
        self.assertEqual(room, b"hello")

    def test_wrong_options_are_an_error_with_a_sentence(self):
        with self.assertRaises(weft.Error) as caught:
            Listener("no.such.host.invalid")
        self.assertTrue(caught.exception.strerror)


if __name__ == "__main__":
    unittest.main(verbosity=2)
