"""Two processes connect by lines of text. Run with the program of processes.cc."""

import os
import subprocess
import sys
import unittest

PROGRAM = ""
LIMIT_S = 60

ASKED = """send
write
write with immediate
read
what was read
fetch and add
what was there before the addition
compare and swap
what was there before the swap
compare and swap
what was there instead
send with immediate
"""
ANSWERED = """a receive
what was sent
a receive
what was written with immediate
what was written
a receive
what was sent with immediate
the counter
"""


def start(role):
    return subprocess.Popen([PROGRAM, role], text=True, env={**os.environ, "WEFT_QUIET": "1"},
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Processes(unittest.TestCase):
    def test_every_operation_between_two(self):
        with start("asks") as asks, start("answers") as answers:
            lines = {side: side.stdout.readline() for side in (asks, answers)}
            for side, other in ((asks, answers), (answers, asks)):
                self.assertTrue(lines[other].startswith("weft1:"), lines[other])
                side.stdin.write(lines[other])
                side.stdin.flush()
            for side, wanted in ((asks, ASKED), (answers, ANSWERED)):
                out, err = side.communicate(timeout=LIMIT_S)
                self.assertEqual((side.returncode, err), (0, ""))
                self.assertEqual(out, wanted)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
