"""The page of `weft dissect --html`: what it holds, and, where there is a browser, that it draws.

A script that is put behind the page's own chooses every connection, exchange and order, and drags
over every plot. Whatever goes wrong then is on the browser's console.
"""

import json
import os
import pathlib
import re
import shutil
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
DRIVE = """<script>
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
document.body.append(Object.assign(document.createElement("pre"),
  { id: "driven", textContent: JSON.stringify(done) }));
</script></body>"""


def page_of(capture, *options, name=None):
    """The text of the page of a stored capture, and what was printed beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = CAPTURES / f"{capture}.pcap.zst"
        if name:
            path = shutil.copy(path, pathlib.Path(folder) / name)
        page = pathlib.Path(folder) / "page.html"
        done = libraries.run(libraries.WEFT, "dissect", "--html", page, *options, path,
                             env=dict(os.environ))
        if done.returncode not in (0, 1):
            raise AssertionError(done.stderr)
        return page.read_text(), done.stdout


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

    def driven(self, page, size="1280,1600"):
        page = page.replace("<body>", f"<body>{WATCH}", 1).replace("</body>", DRIVE, 1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.html"
            path.write_text(page)
            done = subprocess.run(
                [self.browser, "--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
                 "--disable-component-update", f"--user-data-dir={folder}/profile",
                 f"--window-size={size}", "--enable-logging=stderr", "--dump-dom",
                 path.as_uri()],
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

    def test_names_from_outside_are_text(self):
        name = "<!--<script><img src=x onerror=window.thrown.push(1)>.pcap.zst"
        dom, _ = self.driven(page_of("rxe_rping", name=name)[0])
        self.assertIn('<h1 id="name">&lt;!--&lt;script&gt;&lt;img src=x', dom)


if __name__ == "__main__":
    sys.exit(libraries.main())
