"""Messages from Python, by callbacks."""

import errno
import signal
import threading
import unittest

import weft
from hooks import failing, hook
from weft.message import EndedBy, Handlers, Limits, Loop

SECONDS = 60


class Pair(unittest.TestCase):
    spin_us = 0

    def setUp(self):
        self.loop = Loop(Limits(max_message_bytes=1 << 20, spin_us=self.spin_us))
        self.addCleanup(self.loop.close)
        self.got, self.sent, self.ended, self.errors, self.up = [], [], [], [], []
        self.requests = []
        self.passive = None

    def handlers(self, **more):
        values = {"established": lambda link: self.up.append(link),
                  "message": lambda link, message: self.got.append((link, message)),
                  "sent": lambda link, sent: self.sent.append(("sent", sent)),
                  "failed": lambda link, sent: self.sent.append(("failed", sent)),
                  "delivered": lambda link, sent: self.sent.append(("delivered", sent)),
                  "error": lambda link, error: self.errors.append(error),
                  "ended": lambda link, by, number: self.ended.append((link, by, number))}
        return Handlers(**{**values, **more})

    def accept(self, request):
        self.request = request
        self.passive = request.accept(self.handlers(), b"welcome")

    def connect(self, on_request=None, **more):
        listener = self.loop.listen("127.0.0.1", 0, on_request or self.accept)
        return self.loop.connect("127.0.0.1", listener.port, self.handlers(**more), b"key")

    def established(self, **more):
        link = self.connect(**more)
        self.until(lambda: len(self.up) == 2)
        return link

    def until(self, condition):
        self.loop.run_until(condition, SECONDS)

    def test_ping_pong(self):
        active = self.established()
        for turn in range(20):
            active.send(b"ping %d" % turn, type=3, tag=turn)
            self.until(lambda: len(self.got) == 1)
            link, message = self.got.pop()
            self.assertIs(link, self.passive)
            self.assertEqual((message.type, message.tag), (3, turn))
            link.send(message.data)
            self.until(lambda: len(self.got) == 1)
            link, message = self.got.pop()
            self.assertIs(link, active)
            self.assertEqual(message.data, b"ping %d" % turn)

    def test_types_and_tags_that_do_not_fit_are_refused(self):
        active = self.established()
        for values in ({"type": 2**32}, {"type": -1}, {"tag": 2**64}, {"tag": -1}):
            with self.assertRaises(OverflowError):
                active.send(b"hello", **values)
        self.assertEqual(active.statistics["messages_sent"], 0)

    def test_objects_with_memory_are_sent_in_one_piece(self):
        active = self.established()
        for data in (bytearray(b"ab"), memoryview(b"abcd")[1:3], b"", b"x" * (1 << 20)):
            active.send(data)
            self.until(lambda: len(self.got) == 1)
            self.assertEqual(self.got.pop()[1].data, bytes(data))

    def test_messages_are_kept_without_a_copy(self):
        active = self.with_views()
        active.send(b"first")
        active.send(b"second " * 10000)
        active.send(b"")
        self.until(lambda: len(self.got) == 3 and len(self.sent) == 3)
        (_, first), (_, second), (_, empty) = self.got
        self.assertIsInstance(first.data, memoryview)
        self.assertEqual(bytes(first.data), b"first")
        self.assertEqual(bytes(empty.data), b"")
        self.assertEqual(active.statistics["messages_sent"], 3)
        self.assertEqual(self.passive.statistics["bytes_received"], 5 + 70000)
        # The memory outlives the message, the link and the loop.
        part = second.data[7:14]
        self.got.clear()
        del first, second, _
        self.loop.close()
        self.assertEqual(bytes(part), b"second ")

    def test_messages_wait_for_the_connection(self):
        listener = self.loop.listen("127.0.0.1", 0, self.accept)
        link = self.loop.connect("127.0.0.1", listener.port, self.handlers(), b"key",
                                 queue_while_connecting=True)
        link.send(b"early")
        self.until(lambda: self.got)
        self.assertEqual(self.got[0][1].data, b"early")
        refused = self.loop.connect("127.0.0.1", listener.port, self.handlers(), b"key")
        with self.assertRaises(weft.NotConnected):
            refused.send(b"early")

    def test_delivery_is_confirmed(self):
        number = self.established().send(b"x", confirm=True)
        self.until(lambda: len(self.sent) == 2)
        self.assertEqual([(name, sent.number) for name, sent in self.sent],
                         [("sent", number), ("delivered", number)])

    def test_private_data_and_addresses(self):
        active = self.established()
        self.assertEqual(self.request.private_data, b"key")
        self.assertEqual(active.peer_private_data, b"welcome")
        self.assertEqual(active.peer_address, self.passive.local_address)
        self.assertEqual(active.max_message_bytes, 1 << 20)
        self.assertTrue(active.writable)

    def test_a_link_ends_once_on_both_sides(self):
        active = self.established()
        active.finish()
        self.until(lambda: len(self.ended) == 2)
        self.assertEqual({link: by for link, by, _ in self.ended},
                         {active: EndedBy.US, self.passive: EndedBy.PEER})
        with self.assertRaises(weft.NotConnected):
            active.send(b"late")

    def test_a_message_that_is_too_long(self):
        active = self.established()
        with self.assertRaises(weft.Error) as caught:
            active.send(bytes((1 << 20) + 1))
        self.assertIn("does not accept the message", caught.exception.strerror)

    def test_a_full_queue_would_block_and_becomes_writable(self):
        free = []
        active = self.established(writable=free.append)
        with self.assertRaises(BlockingIOError):
            for _ in range(1_000_000):
                active.send(bytes(1 << 16))
        self.assertFalse(active.writable)
        self.until(lambda: free)

    def test_the_peer_rejects(self):
        self.connect(lambda request: request.reject(b"why"))
        self.until(lambda: self.errors)
        self.assertIsInstance(self.errors[0], weft.Refused)
        self.assertTrue(self.errors[0].strerror)

    def test_an_exception_of_a_callback_is_raised_by_the_step(self):
        def fail(link, message):
            raise KeyError("of the callback")
        active = self.connect(lambda request: setattr(
            self, "passive", request.accept(self.handlers(message=fail))))
        self.until(lambda: len(self.up) == 2)
        active.send(b"x")
        with self.assertRaisesRegex(KeyError, "of the callback"):
            self.until(lambda: False)

    def test_a_link_is_closed_in_its_callback(self):
        active = self.connect(lambda request: setattr(self, "passive", request.accept(
            self.handlers(message=lambda link, message: link.close()))))
        self.until(lambda: len(self.up) == 2)
        active.send(b"x")
        self.until(lambda: self.ended)
        self.assertIs(self.ended[0][0], active)
        with self.assertRaisesRegex(ValueError, "closed"):
            self.passive.send(b"x")

    def test_a_request_is_answered_once(self):
        self.established()
        with self.assertRaises(ValueError):
            self.request.reject()

    def test_a_request_that_is_not_answered_is_rejected(self):
        def fail(request):
            self.requests.append(request)
            raise KeyError("of the callback")

        self.connect(lambda request: None)
        self.until(lambda: self.errors)
        self.connect(fail)
        with self.assertRaisesRegex(KeyError, "of the callback"):
            self.until(lambda: len(self.errors) == 2)
        self.until(lambda: len(self.errors) == 2)
        with self.assertRaises(ValueError):
            self.requests.pop().reject()
        self.connect(self.requests.append)
        self.until(lambda: self.requests)
        self.requests.clear()
        self.until(lambda: len(self.errors) == 3)
        self.assertEqual({type(one) for one in self.errors}, {weft.Refused})

    def test_a_request_can_be_answered_after_a_wrong_argument(self):
        self.connect(self.requests.append)
        self.until(lambda: self.requests)
        with self.assertRaises(TypeError):
            self.requests[0].reject("text")
        with self.assertRaises(TypeError):
            self.requests[0].accept(self.handlers(), "text")
        self.requests[0].reject(b"bytes")
        self.until(lambda: self.errors)

    def with_views(self):
        active = self.connect(lambda request: setattr(
            self, "passive", request.accept(self.handlers(views=True))))
        self.until(lambda: len(self.up) == 2)
        return active

    def test_an_interrupt_in_a_callback_is_raised_and_loses_no_message(self):
        self.with_views().send(b"kept")
        before = signal.getsignal(signal.SIGINT)
        with hook("message_keep", lambda: signal.raise_signal(signal.SIGINT)):
            with self.assertRaises(KeyboardInterrupt):
                self.until(lambda: False)
        self.assertIs(signal.getsignal(signal.SIGINT), before)
        self.until(lambda: self.got)
        self.assertEqual(self.got[0][1].data, b"kept")

    def test_a_message_that_cannot_be_kept_is_a_failure_of_the_step(self):
        self.with_views().send(b"lost")
        with failing("message_keep", errno.ENOMEM), self.assertRaises(weft.Error) as caught:
            self.until(lambda: False)
        self.assertEqual(caught.exception.errno, errno.ENOMEM)

    def ends_in_a_thread(self, call, cause):
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        cause()
        thread.join(SECONDS)
        self.assertFalse(thread.is_alive())

    def test_waking_ends_a_step_that_has_no_timeout(self):
        self.ends_in_a_thread(self.loop.step, self.loop.wake)
        condition = threading.Event()
        self.ends_in_a_thread(lambda: self.loop.run_until(condition.is_set),
                              lambda: (condition.set(), self.loop.wake()))

    def test_a_request_outlives_its_loop(self):
        self.connect(self.requests.append)
        self.until(lambda: self.requests)
        self.loop.close()
        self.requests.clear()

    def test_a_step_without_work_ends_at_the_timeout(self):
        self.assertEqual(self.loop.step(0.01), 0)


class PairWithoutPolling(Pair):
    spin_us = -1


if __name__ == "__main__":
    unittest.main(verbosity=2)
