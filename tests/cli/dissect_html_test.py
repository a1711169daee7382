"""The page of `weft dissect --html`: what it holds, and, where there is a browser, that it draws.

A script that is put behind the page's own chooses every connection, exchange and order, and drags
over every plot. Whatever goes wrong then is on the browser's console.
"""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "dropin"))
import libraries  # pylint: disable=wrong-import-position

CAPTURES = TESTS / "data" / "capture"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

# Runs before the page's script: nothing that it throws is missed.
WATCH = """<script>window.thrown = [];
window.addEventListener("error", (event) => window.thrown.push(event.message));
document.addEventListener("securitypolicyviolation",
  (event) => window.thrown.push(`wants ${event.blockedURI}`));</script>"""
DRIVE = """
const done = { connections: 0, exchanges: 0, tabs: 0, drags: 0 };
const all = (what) => [...document.querySelectorAll(what)];
const drag = (plot) => {
  const box = plot.getBoundingClientRect();
  const event = (name, share) => plot.dispatchEvent(new PointerEvent(name,
    { clientX: box.left + box.width * share, clientY: box.top + 20, bubbles: true }));
  event("pointerdown", .3);
  event("pointermove", .5);
  event("pointerup", .6);
  ++done.drags;
};
for (const row of all("tr.choice")) {
  row.click();
  ++done.connections;
  for (const tab of all("#exchanges .tabs button")) { tab.click(); ++done.tabs; }
  for (const one of all(".exchange-list button").slice(0, 20)) { one.click(); ++done.exchanges; }
  for (let at = 0; at < all("svg.zoomable").length; ++at) drag(all("svg.zoomable")[at]);
}
all("tr.choice")[0].click();
for (const mark of all(".mark").slice(0, 50)) {
  mark.dispatchEvent(new PointerEvent("pointermove", { clientX: 5, clientY: 5 }));
}
done.tip = document.getElementById("tip").textContent;
done.thrown = window.thrown;
"""
# Writes what a script has found out into the page, where the test finds it.
TELL = """document.body.append(Object.assign(document.createElement("pre"),
  { id: "driven", textContent: JSON.stringify(done) }));
"""
# Clicks on the headings of the table of connections, and notes its order after each click.
SORT = """
const done = { thrown: window.thrown, orders: {} };
const order = () => [...document.querySelectorAll("tr.choice")]
  .map((row) => Number(row.dataset.connection));
const heading = (name) => [...document.querySelectorAll("[data-table=connections] th button")]
  .find((button) => button.textContent === name);
done.orders.first = order();
heading("bytes").click();
done.orders.bytes = order();
done.link = location.hash;
heading("bytes").click();
done.orders["bytes ascending"] = order();
heading("between").click();
done.orders.between = order();
"""
# Notes the view that the page shows.
LOOK = """
const done = {
  thrown: window.thrown,
  order: [...document.querySelectorAll("tr.choice")].map((row) => Number(row.dataset.connection)),
  chosen: Number(document.querySelector("tr.chosen")?.dataset.connection),
  whole: [...document.querySelectorAll("button")]
    .find((button) => button.textContent === "whole time")?.hidden,
  heads: [0, 1, 2, 3, 4].map((kind) =>
    document.querySelectorAll(`.trouble-head.trouble-${kind}`).length),
  congestion: document.querySelectorAll("rect.congestion").length,
  legend: [...document.querySelectorAll(".legend span")].map((one) => one.textContent),
  procedures: [...document.querySelectorAll("[data-table=procedures] tbody tr")]
    .map((row) => [...row.children].map((cell) => cell.textContent)),
  pairs: document.querySelectorAll("tr.pair").length,
  wide: [...document.querySelectorAll("table")].filter((table) =>
    table.scrollWidth > table.parentElement.clientWidth + 1).length,
};
"""


def page_of(capture, *options, name=None):
    """The text of the page of a stored capture, and what was printed beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = capture if isinstance(capture, pathlib.Path) else CAPTURES / f"{capture}.pcap.zst"
        if name:
            path = shutil.copy(path, pathlib.Path(folder) / name)
        page = pathlib.Path(folder) / "page.html"
        done = libraries.run(libraries.WEFT, "dissect", "--html", page, *options, path,
                             env=dict(os.environ))
        if done.returncode not in (0, 1):
            raise AssertionError(done.stderr)
        return page.read_text(), done.stdout


def frames_of(capture):
    """The header of a stored capture, and its frames as (header, bytes)."""
    data = subprocess.run(["zstd", "-dcq", CAPTURES / f"{capture}.pcap.zst"], check=True,
                          stdout=subprocess.PIPE).stdout
    frames, at = [], 24
    while at < len(data):
        kept = struct.unpack_from("<I", data, at + 8)[0]
        frames.append((data[at:at + 16], data[at + 16:at + 16 + kept]))
        at += 16 + kept
    return data[:24], frames


def changed_capture(capture, change):
    """The same capture with the bytes of each frame changed."""
    head, frames = frames_of(capture)
    return head + b"".join(one + change(number, data) for number, (one, data) in enumerate(frames))


def with_congestion_mark(number, data):
    """Marks every third packet of RoCE over IPv4, as a congested switch does."""
    ipv4, ecn_at = b"\x08\x00", 15
    if number % 3 or data[12:14] != ipv4 or data[36:38] != struct.pack(">H", 4791):
        return data
    return data[:ecn_at] + bytes([data[ecn_at] | 3]) + data[ecn_at + 1:]


def repeated_capture(capture, packets):
    """Copies of a capture one after the other, with 96 bytes of each large frame. They are as far
    apart as the numbers of connections are used again."""
    snap_bytes, large_bytes, spread_s = 96, 400, 100  # the connection manager's frames stay whole
    head, frames = frames_of(capture)
    out = [head]
    for copy in range(-(-packets // len(frames))):
        for one, data in frames:
            seconds, fraction, kept, wire = struct.unpack("<IIII", one)
            kept = snap_bytes if kept > large_bytes else kept
            out += [struct.pack("<IIII", seconds + copy * spread_s, fraction, kept, wire),
                    data[:kept]]
    return b"".join(out)


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))


class Content(unittest.TestCase):
    def test_the_summary_is_printed_as_ever(self):
        page, printed = page_of("rxe_rping")
        self.assertIn("rxe_rping.pcap.zst", printed)
        self.assertTrue(page.startswith("<!DOCTYPE html>"))

    def test_names_nothing_outside(self):
        page, _ = page_of("rxe_rping")
        addresses = set(re.findall(r"\w+://[^\"'\s]+", page))
        self.assertEqual(addresses, {"http://www.w3.org/2000/svg"})
        self.assertNotRegex(page, r"\b(src|href)=\"(?!data:)|\burl\(|@import|\bfetch\(|\bimport\b")
        self.assertIn("default-src 'none'", page)

    def test_rpcs_have_what_was_read_and_written_for_them(self):
        """RDMA Writes carry a READ's bytes, RDMA Reads a WRITE's, between call and reply."""
        for capture in ("nfs3_rxe", "nfs4_siw"):
            detail = data_of(page_of(capture)[0])["details"][0]
            seen = set()
            for exchange in detail["exchanges"]:
                operations = exchange["operations"]
                self.assertTrue(exchange["call"])
                self.assertGreaterEqual(len(operations), 2, exchange)
                # kind 0 is Send; sides
                self.assertEqual([one[0] for one in (operations[0], operations[-1])], [0, 0])
                self.assertEqual(operations[0][1], exchange["side"])
                self.assertEqual(operations[-1][1], 1 - exchange["side"])
                counted = re.search(r"(\d+) B at \d+", exchange["detail"])
                carried = sum(one[3] for one in operations[1:-1])
                if counted and exchange["title"].split()[-1] == "WRITE" and carried:
                    seen.add("write")
                    self.assertEqual(carried, int(counted.group(1)))
                    self.assertEqual({one[0] for one in operations[1:-1]}, {2})
                if carried and "READ" in exchange["title"].split():
                    seen.add("read")
                    self.assertEqual({one[0] for one in operations[1:-1]}, {1})
            self.assertEqual(seen, {"write", "read"}, capture)

    def test_a_file_that_cannot_be_written_is_said(self):
        done = libraries.run(libraries.WEFT, "dissect", "--html", "/nowhere/page.html",
                             CAPTURES / "rxe_rping.pcap.zst")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/page.html", done.stderr)


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if cls.browser is None:
            raise unittest.SkipTest("no browser is installed (chromium would do)")

    def driven(self, page, size="1280,1600", script=DRIVE, link=""):
        """Shows the page and runs the script in it; returns the document and what it wrote."""
        page = page.replace("<body>", f"<body>{WATCH}", 1)
        page = page.replace("</body>", f"<script>{script}{TELL}</script></body>", 1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.html"
            path.write_text(page)
            done = subprocess.run(
                [self.browser, "--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
                 "--disable-component-update", f"--user-data-dir={folder}/profile",
                 f"--window-size={size}", "--enable-logging=stderr", "--dump-dom",
                 path.as_uri() + link],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, timeout=240, check=False)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        self.assertEqual(console, [])
        found = re.search(r'<pre id="driven">(.*?)</pre>', done.stdout, re.DOTALL)
        self.assertTrue(found, done.stderr[-2000:])
        result = json.loads(found.group(1).replace("&gt;", ">").replace("&lt;", "<"))
        self.assertEqual(result["thrown"], [])
        return done.stdout, result

    def check(self, capture, size):
        page, _ = page_of(capture)
        dom, result = self.driven(page, size)
        data = data_of(page)
        self.assertEqual(result["connections"], len(data["connections"]))
        self.assertGreater(result["exchanges"], 0)
        self.assertGreater(result["tabs"], 0)
        self.assertGreater(result["drags"], 0)
        self.assertRegex(result["tip"], "frames")
        self.assertIn('data-ready="yes"', dom)
        self.assertIn(f"<h1 id=\"name\">{capture}.pcap.zst</h1>", dom)
        self.assertEqual(dom.count('<tr class="choice'), len(data["connections"]))
        for label in ("operations over time", "throughput over time", "sequence diagram"):
            self.assertIn(f'aria-label="{label}"', dom)
        self.assertRegex(dom, r'class="sequence".*<polygon')
        if data["findings"]:
            self.assertIn(data["findings"][0]["sentence"].split(".")[0], dom)

    def test_draws_calls_and_replies(self):
        self.check("nfs4_siw", "1280,1600")

    def test_draws_errors_in_a_narrow_window(self):
        self.check("rxe_errors", "420,900")

    def test_headings_sort(self):
        page, _ = page_of("rxe_sizes")
        connections = data_of(page)["connections"]
        self.assertGreater(len(connections), 5)
        sums = {one["connection"]: sum(kind["bytes"] for kind in one["operations"])
                for one in connections}
        _, result = self.driven(page, script=SORT)
        orders = result["orders"]
        self.assertEqual(orders["first"], sorted(sums))
        # Those with equal sums keep their order.
        self.assertEqual(orders["bytes"], sorted(sums, key=lambda one: -sums[one]))
        self.assertEqual(orders["bytes ascending"], sorted(sums, key=lambda one: sums[one]))
        self.assertEqual(sorted(orders["between"]), sorted(sums))
        self.assertIn("connections-by=bytes", result["link"])
        self.assertIn("connections-order=descending", result["link"])

    def test_a_link_carries_the_view(self):
        page, _ = page_of("rxe_sizes")
        _, plain = self.driven(page, script=LOOK)
        self.assertTrue(plain["whole"])
        last = [one for one in data_of(page)["connections"] if one["operations"]][-1]
        self.assertNotEqual(plain["chosen"], last["connection"])
        begin = last["first_ns"] - data_of(page)["trace"][0]["first_ns"]
        _, linked = self.driven(page, script=LOOK, link=(
            f"#connection={last['connection']}&from={begin}&to={begin + 1000000}"
            "&connections-by=bytes&connections-order=descending"))
        self.assertEqual(linked["chosen"], last["connection"])
        self.assertFalse(linked["whole"])
        _, sorted_too = self.driven(page, script=SORT)
        self.assertEqual(linked["order"], sorted_too["orders"]["bytes"])

    def test_trouble_is_marked_in_the_plots(self):
        """Repeats, RNR NAKs, refusals and gaps, each where it was."""
        page, _ = page_of("rxe_loss_in")
        _, lossy = self.driven(page, script=LOOK)
        self.assertGreater(lossy["heads"][0], 0)
        self.assertIn("sent again", lossy["legend"])
        page, _ = page_of("rxe_errors")
        for kind, name in ((1, "receiver_not_ready"), (3, "refusals")):
            number = next(one["connection"] for one in data_of(page)["connections"]
                          if one["side_a"][name] + one["side_b"][name] > 0)
            _, shown = self.driven(page, script=LOOK, link=f"#connection={number}")
            self.assertGreater(shown["heads"][kind], 0, name)

    def test_congestion_over_time_is_drawn(self):
        _, plain = self.driven(page_of("rxe_perf_write")[0], script=LOOK)
        self.assertEqual(plain["congestion"], 0)
        with tempfile.TemporaryDirectory() as folder:
            marked = pathlib.Path(folder) / "marked.pcap"
            marked.write_bytes(changed_capture("rxe_perf_write", with_congestion_mark))
            page, _ = page_of(marked)
        most = max(data_of(page)["connections"],
                   key=lambda one: one["side_a"]["congestion_marked"])
        _, shown = self.driven(page, script=LOOK, link=f"#connection={most['connection']}")
        self.assertGreater(shown["congestion"], 0)

    def test_where_the_time_went_is_a_table(self):
        page, printed = page_of("nfs4_siw")
        _, shown = self.driven(page, script=LOOK)
        self.assertEqual([row[0] for row in shown["procedures"]][:16],
                         [one["name"] for one in data_of(page)["procedures"]][:16])
        self.assertIn(shown["procedures"][0][0], printed)
        # All columns are seen without scrolling.
        self.assertEqual(shown["wide"], 0)

    def test_the_parts_of_the_time_are_columns(self):
        page, _ = page_of("nfs4_siw")
        _, shown = self.driven(page, script=LOOK)
        one, row = data_of(page)["procedures"][0], shown["procedures"][0]
        latency = one["server"] + one["transfer"] + one["waits"] + one["repeats"]
        self.assertEqual(latency, one["total"])
        self.assertEqual(one["held"], one["credits"] + one["queue"] + one["slots"])
        whole = latency + one["held"]
        self.assertEqual(row[8], f"{round(one['server'] * 100 / whole)} %")
        self.assertEqual(row[9], f"{round(one['transfer'] * 100 / whole)} %")
        self.assertEqual(row[11], f"{round(one['repeats'] * 100 / whole)} %")

    def test_a_million_packets_are_an_overview(self):
        """Hundreds of connections with a million packets: the page is small, and it can be used."""
        with tempfile.TemporaryDirectory() as folder:
            large = pathlib.Path(folder) / "large.pcap"
            large.write_bytes(repeated_capture("rxe_perf_write", 1_000_000))
            page, _ = page_of(large)
        data = data_of(page)
        self.assertGreaterEqual(data["trace"][0]["frames"], 1_000_000)
        self.assertGreater(len(data["connections"]), 300)
        self.assertLess(len(page), 10_000_000)
        dom, result = self.driven(page, script=SORT)
        self.assertIn('data-ready="yes"', dom)
        # The largest ones come first, and the rest by a click.
        self.assertEqual(len(result["orders"]["first"]), 12)
        sums = {one["connection"]: sum(kind["bytes"] for kind in one["operations"])
                for one in data["connections"]}
        self.assertEqual(sums[result["orders"]["first"][0]], max(sums.values()))

    def test_names_from_outside_are_text(self):
        name = "<!--<script><img src=x onerror=window.thrown.push(1)>.pcap.zst"
        dom, _ = self.driven(page_of("rxe_rping", name=name)[0])
        self.assertIn('<h1 id="name">&lt;!--&lt;script&gt;&lt;img src=x', dom)


if __name__ == "__main__":
    sys.exit(libraries.main())
