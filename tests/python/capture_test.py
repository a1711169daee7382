"""Captures as records, from the stored captures of the kernel's devices."""

import json
import os
import pathlib
import subprocess
import unittest

import weft
from weft import capture

DATA = pathlib.Path(__file__).parents[1] / "data/capture"
PROGRAM = os.environ["WEFT_TEST_PROGRAM"]
NFS = DATA / "nfs3_rxe.pcap.zst"

try:
    import pandas
except ImportError:
    pandas = None


class Records(unittest.TestCase):
    def test_operations_are_those_of_the_program(self):
        # The exit status is 1: the capture has findings.
        text = subprocess.run([PROGRAM, "dissect", "--json", "--operations", NFS], check=False,
                              stdout=subprocess.PIPE, timeout=120).stdout
        numbers = [one["operation"] for one in map(json.loads, text.splitlines())
                   if one["type"] == "operation"]
        found = list(capture.operations(NFS, program=PROGRAM))
        self.assertEqual([one["operation"] for one in found], numbers)
        self.assertLessEqual({"send", "write"}, {one["kind"] for one in found})

    def test_rpcs_are_flat(self):
        found = list(capture.rpcs(NFS, program=PROGRAM))
        self.assertTrue(any(one["name"].startswith("NFSv3") for one in found))
        for one in found:
            self.assertFalse([name for name, value in one.items() if isinstance(value, dict)])
        self.assertIsInstance(found[0]["call_frame"], int)

    def test_a_filter_selects(self):
        some = list(capture.rpcs(NFS, "rpc.latency > 10ms", program=PROGRAM))
        self.assertTrue(some)
        self.assertTrue(all(one["latency_ns"] > 10_000_000 for one in some))

    def test_connections_and_findings(self):
        self.assertTrue(list(capture.connections(NFS, program=PROGRAM)))
        found = list(capture.findings(DATA / "siw_errors.pcap.zst", program=PROGRAM))
        self.assertTrue(found)
        self.assertIn("severity", found[0])

    def test_an_iterator_can_be_left(self):
        found = capture.records(NFS, "--operations", program=PROGRAM)
        next(found)
        found.close()

    def test_a_file_that_is_not_there(self):
        with self.assertRaisesRegex(weft.Error, "no_such_file"):
            list(capture.operations("no_such_file.pcap", program=PROGRAM))

    @unittest.skipUnless(pandas, "needs the package python3-pandas")
    def test_pandas_takes_them(self):
        table = pandas.DataFrame(capture.rpcs(NFS, program=PROGRAM))
        self.assertIn("latency_ns", table.columns)


if __name__ == "__main__":
    unittest.main(verbosity=2)
