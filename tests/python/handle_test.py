"""Objects that one thread closes while another one is inside of a call."""

import contextlib
import threading
import unittest

from hooks import hook
from weft._handle import Handle
from weft.connection import Listener as ConnectionListener
from weft.connection import connect
from weft.message import Loop
from weft.stream import EventQueue, Listener, Options, start_connecting

SECONDS = 60


class Closing(unittest.TestCase):
    def close_during(self, function, call, freeing, close):
        """Closes while a thread is inside of the function: nothing is freed before it returns."""
        inside, may_return, freed = threading.Event(), threading.Event(), threading.Event()

        def after():
            inside.set()
            may_return.wait(SECONDS)

        def attempt():
            with contextlib.suppress(OSError, ValueError):
                call()

        with hook(function, after), hook(freeing, freed.set):
            thread = threading.Thread(target=attempt)
            thread.start()
            self.assertTrue(inside.wait(SECONDS))
            close()
            was_freed = freed.is_set()
            may_return.set()
            thread.join(SECONDS)
            self.assertFalse(was_freed)
            self.assertTrue(freed.is_set())
        with self.assertRaises(ValueError):
            call()
        close()

    def test_a_stream(self):
        with Listener("127.0.0.1") as listener:
            active = start_connecting("127.0.0.1", listener.port)
            with listener.accept(SECONDS):
                active.await_connected(SECONDS)
                self.close_during("stream_receive_with", lambda: active.receive(1, 0),
                                  "stream_free", lambda: active.close(0))

    def test_listeners_and_queues(self):
        listener = Listener("127.0.0.1")
        self.close_during("stream_accept", lambda: listener.accept(0), "stream_listener_free",
                          listener.close)
        connections = ConnectionListener("127.0.0.1")
        self.close_during("connection_next", lambda: connections.next(0),
                          "connection_listener_free", connections.close)
        queue = EventQueue()
        self.close_during("stream_events_next", lambda: queue.next(0), "stream_events_free",
                          queue.close)
        loop = Loop()
        self.close_during("loop_wake", loop.wake, "loop_free", loop.close)

    def test_a_connection_and_its_buffers(self):
        with ConnectionListener("127.0.0.1") as listener:
            accepted = []
            thread = threading.Thread(target=lambda: accepted.append(listener.accept()))
            thread.start()
            active = connect("127.0.0.1", listener.port, timeout=SECONDS)
            thread.join(SECONDS)
        with accepted[0]:
            first, second = active.register(bytearray(8)), active.register(bytearray(8))
            self.close_during("buffer_remote", lambda: first.remote, "buffer_free", first.close)
            first.owner.append(1)
            active.post_receive(second)
            self.close_during("connection_await_disconnect", lambda: active.await_disconnect(0),
                              "connection_free", active.close)
            second.close()
            second.owner.append(1)


class Errors(unittest.TestCase):
    def test_the_text_is_that_of_the_call_and_not_of_a_later_one(self):
        with Listener("127.0.0.1") as listener:
            stream = start_connecting("127.0.0.1", listener.port)
        handle = stream._handle
        free = handle._free

        def fail(pointer):
            free(pointer)
            with self.assertRaisesRegex(OSError, "mapped_buffers"):
                start_connecting("127.0.0.1", 1, Options(mapped_buffers=256))

        handle._free = fail
        with hook("stream_consume", handle.close):
            with self.assertRaisesRegex(OSError, "consume 7 bytes"):
                stream.consume(7)
        self.assertTrue(handle.closed and not handle.pointer)


class Handles(unittest.TestCase):
    def test_the_last_call_frees(self):
        freed = []
        handle = Handle("the object", lambda pointer: freed.append(pointer.value))
        handle.pointer.value = 7
        self.assertEqual([handle.enter().value, handle.enter().value], [7, 7])
        self.assertTrue(handle.close())
        self.assertFalse(handle.close())
        with self.assertRaisesRegex(ValueError, "the object is closed"):
            handle.enter()
        handle.leave()
        self.assertEqual(freed, [])
        handle.leave()
        self.assertEqual(freed, [7])

    def test_one_that_was_taken_is_not_freed(self):
        freed = []
        handle = Handle("the object", freed.append)
        handle.pointer.value = 7
        self.assertEqual(handle.take().value, 7)
        with self.assertRaisesRegex(ValueError, "the object is closed"):
            handle.take()
        self.assertFalse(handle.close())
        self.assertEqual(freed, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
