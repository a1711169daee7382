"""bench/compare.py on figures that are known: ratios, ranges, order, what is missing, the page."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import compare  # noqa: E402
import programs  # noqa: E402


def figures(*values, log=None, name=""):
    """A measurement that gives one value after the other."""
    left = list(values)

    def measure():
        if log is not None:
            log.append(name)
        value = left.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    return measure


def row(limit, **contenders):
    return compare.Row("a row", "us", False, "the limit", limit, contenders)


class Summary(unittest.TestCase):
    def result_of(self, one, rounds=3):
        return compare.summary(one, *compare.measure_row(one, rounds))

    def test_ratios_are_to_the_limit_of_the_same_round(self):
        result = self.result_of(row(figures(1, 2, 4), weft=figures(3, 4, 16)))
        weft = result["contenders"][0]
        self.assertEqual((weft["ratio"], weft["lowest"], weft["highest"]), (3, 2, 4))
        self.assertEqual(weft["median"], 4)
        self.assertTrue(weft["told_apart"])

    def test_a_range_around_one_is_not_told_apart(self):
        result = self.result_of(row(figures(2, 2, 2), weft=figures(1, 2, 3)))
        self.assertFalse(result["contenders"][0]["told_apart"])

    def test_rounds_alternate(self):
        log = []
        self.result_of(row(figures(1, 1, log=log, name="limit"),
                           weft=figures(1, 1, log=log, name="weft")), 2)
        self.assertEqual(log, ["limit", "weft", "weft", "limit"])

    def test_what_fails_or_is_not_installed_has_its_reason_and_no_figure(self):
        result = self.result_of(row(figures(1, 1, 1), gone=None,
                                    broken=figures(1, compare.Failed("no results"))))
        gone, broken = result["contenders"]
        self.assertEqual(gone["missing"], "not installed")
        self.assertEqual(broken["missing"], "no results")
        self.assertNotIn("| broken |", compare.table([result]))

    def test_without_a_limit_there_are_no_ratios(self):
        result = self.result_of(row(figures(compare.Failed("refused")), weft=figures(1, 1, 1)))
        self.assertEqual(result["contenders"][0]["missing"], "no limit")
        self.assertNotIn("weft", compare.table([result]))
        with contextlib.redirect_stdout(io.StringIO()) as text:
            compare.show(result)
        self.assertIn("no limit", text.getvalue())


class Page(unittest.TestCase):
    stored = {"machine": {"processors": 2, "model": "a processor", "kernel": "6"}, "rounds": 3,
              "rows": []}

    def write(self, text):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(text)
            compare.write_page(page, self.stored)
            return page.read_text()

    def test_only_the_part_between_the_marks_changes(self):
        text = self.write(f"before\n{compare.BEGIN}old\n{compare.END}after\n")
        self.assertTrue(text.startswith(f"before\n{compare.BEGIN}"))
        self.assertTrue(text.endswith(f"{compare.END}after\n"))
        self.assertNotIn("old", text)
        self.assertIn("a processor", text)

    def test_a_page_without_marks_is_refused(self):
        with self.assertRaises(SystemExit):
            self.write("nothing\n")


class Rows(unittest.TestCase):
    def test_every_row_has_a_name_of_its_own(self):
        bench = compare.Bench(Path("/nonexistent"), 1)
        names = [one.name for rows in (compare.one_host_rows, compare.tcp_rows, compare.plot_rows)
                 for one in rows(bench)]
        self.assertEqual(len(names), len(set(names)))

    def test_so_has_every_row_of_programs(self):
        with tempfile.TemporaryDirectory() as scratch:
            all_programs = programs.Programs(Path("/nonexistent"), 1, False, scratch)
            rows = list(programs.rows_of(all_programs))
        names = [one.name for one in rows]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(all(one.limit_name == programs.KERNEL for one in rows))

    def test_programs_that_are_not_installed_have_no_figure(self):
        with tempfile.TemporaryDirectory() as scratch:
            program = programs.Programs(Path("/nonexistent"), 1, False, scratch)
            one = program.row("a row", None, None, None, needs=(None,))
        self.assertEqual(compare.measure_row(one, 1)[1],
                         {programs.KERNEL: "not installed", programs.WEFT: "not installed"})


if __name__ == "__main__":
    unittest.main()
