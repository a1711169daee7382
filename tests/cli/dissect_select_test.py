"""`weft dissect --filter`: what it selects of stored captures, in each form of output."""

import csv
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "dropin"))
import libraries  # pylint: disable=wrong-import-position

CAPTURES = TESTS / "data" / "capture"


def dissect(*arguments):
    return libraries.run(libraries.WEFT, "dissect", *map(str, arguments), cwd=CAPTURES,
                         env=dict(os.environ))


def lines(*arguments):
    done = dissect("--json", *arguments)
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Filters(unittest.TestCase):
    """What is selected is compared with the same condition on the fields of the JSON output."""

    def check(self, capture, option, expression, condition):
        every = lines(option, capture)
        some = lines(option, "--filter", expression, capture)
        wanted = [one for one in every if condition(one)]
        ids = {"--rpc": "rpc", "--operations": "operation", "--findings": "sentence"}
        key = ids[option]
        if option == "--rpc":  # numbered among those that are shown
            for number, one in enumerate(wanted, 1):
                one["rpc"] = number
        self.assertEqual([one[key] for one in some], [one[key] for one in wanted])
        self.assertEqual(some, wanted)
        self.assertTrue(0 < len(some) < len(every), (len(some), len(every)))

    def test_rpcs(self):
        def writes(one):
            return any(op["name"] == "WRITE" for op in one.get("nfs", {}).get("operations", ()))
        self.check("nfs4_siw.pcap.zst", "--rpc",
                   'rpc.latency > 10ms && rpc.procedure == "WRITE" && peer == 10.0.0.0/8',
                   lambda one: one.get("latency_ns", 0) > 10 ** 7 and writes(one))
        self.check("nfs3_rxe.pcap.zst", "--rpc", "rpc.status != OK",
                   lambda one: one["status"] != "OK")
        self.check("nfs3_rxe.pcap.zst", "--rpc", "nfs.name == f3000",
                   lambda one: any("f3000" in (op.get("entry"),
                                               op["name"] == "RENAME" and op.get("target"))
                                   for op in one.get("nfs", {}).get("operations", ())))

    def test_operations(self):
        self.check("rxe_sizes.pcap.zst", "--operations",
                   "operation.kind in {write, read} && operation.bytes >= 10kB",
                   lambda one: one["kind"] in ("write", "read") and one["bytes"] >= 10000)
        self.check("rxe_sizes.pcap.zst", "--operations", "qp == 0x18 || connection == 1",
                   lambda one: one["connection"] in self.with_qp("rxe_sizes.pcap.zst", 24) | {1})
        self.check("rxe_sizes.pcap.zst", "--operations", "frame > 100 and not frame >= 300",
                   lambda one: 100 < one["start_frame"] < 300)

    @staticmethod
    def with_qp(capture, number):
        return {one["connection"] for one in lines("--connections", capture)
                if number in (one["a"].get("qp"), one["b"].get("qp"))}

    def test_findings_and_the_exit_status(self):
        self.check("rxe_errors.pcap.zst", "--findings", "finding.kind == refused",
                   lambda one: one["kind"] == "refused")
        self.assertEqual(dissect("--filter", "finding.kind == refused",
                                 "rxe_errors.pcap.zst").returncode, 1)
        self.assertEqual(dissect("--filter", "finding.kind == no-such-kind",
                                 "rxe_errors.pcap.zst").returncode, 0)

    def test_connections_are_shown_of_which_something_is_selected(self):
        capture = "rxe_sizes.pcap.zst"
        large = {one["connection"] for one in lines("--operations", capture)
                 if one["bytes"] > 20000}
        shown = lines("--connections", "--filter", "operation.bytes > 20kB", capture)
        self.assertEqual({one["connection"] for one in shown}, large)
        self.assertTrue(large)
        # The connection itself matches, and none of its operations.
        shown = lines("--connections", "--filter", "connection == 2 && connection.end", capture)
        self.assertEqual([one["connection"] for one in shown], [2])

    def test_each_form_of_output(self):
        options = ("--filter", "rpc.latency > 10ms", "nfs4_siw.pcap.zst")
        count = len(lines("--rpc", *options))
        self.assertGreater(count, 0)
        self.assertEqual(len(dissect("--rpc", *options).stdout.splitlines()), count + 1)
        rows = list(csv.reader(io.StringIO(dissect("--rpc", "--csv", *options).stdout)))
        self.assertEqual(len(rows), count + 1)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            done = dissect("--html", out / "page.html", "--extract", out / "files", *options)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            index = json.loads((out / "files" / "index.json").read_text())
            self.assertEqual(sum(one["type"] == "call" for one in index), count)
            page = (out / "page.html").read_text()
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
        self.assertEqual(len(data["connections"]), 1)

    def test_messages_are_extracted_by_what_is_known_of_them(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "files"
            dissect("--extract", out, "--filter",
                    "operation.kind == write && operation.bytes > 10kB", "rxe_sizes.pcap.zst")
            index = json.loads((out / "index.json").read_text())
        wanted = [one for one in lines("--operations", "rxe_sizes.pcap.zst")
                  if one["kind"] == "write" and one["bytes"] > 10000]
        self.assertEqual(len(index), len(wanted))
        self.assertTrue(wanted)

    def test_mistakes_point_at_the_place(self):
        done = dissect("--filter", "peer == 10.0.0.7 && rpc.latancy > 10ms", "no-such-file")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "weft: dissect: --filter: 'rpc.latancy' is not a field; did "
                                      "you mean rpc.latency?\n"
                                      "peer == 10.0.0.7 && rpc.latancy > 10ms\n"
                                      "                    ^~~~~~~~~~~\n")

    def test_each_field_is_documented(self):
        fields = set(re.findall(r"^  ([a-z_.]+)$", libraries.run(
            libraries.WEFT, "help", "filters").stdout.split("Fields,")[1], re.MULTILINE))
        self.assertGreater(len(fields), 30)
        page = (TESTS.parent / "docs" / "dissect.md").read_text()
        table = page.split("| field | type |")[1].split("\n\n")[0]
        self.assertEqual(set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)), fields)


if __name__ == "__main__":
    sys.exit(libraries.main())
