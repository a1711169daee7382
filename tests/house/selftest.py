"""The house tests find what they shall find and nothing else, and ./dev answers as it should."""

import collections
import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import byte_order
import house
import includes
import language
import sizes
import summary
import text
import threats

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def tree(files):
    """The root of a project in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory).resolve()
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        yield root


def include_findings(files):
    with tree(files) as root, contextlib.redirect_stdout(io.StringIO()):
        checker = includes.Checker(root)
        checker.check()
        return checker.report.failures


class Threats(unittest.TestCase):
    FILES = {"src/device/a.cc": "", "tests/device/a_test.cc": "TEST_F(Good, IsFine) {}\n",
             "tests/interop/b.py": 'cases.add("hostile.script")\n', "fuzz/c_fuzz.cc": ""}

    def findings(self, row):
        page = f"## RFC 5042\n\n| section | threat | code | test | verdict |\n{row}\n"
        with tree({**self.FILES, "docs/security.md": page}) as root:
            report = house.Report(root)
            sources = {"/" + path.relative_to(root).as_posix() for path in house.sources(root)}
            threats.check(report, root / threats.PAGE, threats.Tests(root), sources)
            return report.failures

    def test_what_exists(self):
        self.assertEqual(self.findings(
            "| 1 | a | `device/a.cc` | `Good.*`, `Good.IsFine`, `interop.hostile.*`, `c_fuzz` | "
            "kept |"), [])
        self.assertEqual(self.findings("| 1 | a | - | - | inherent |"), [])

    def test_what_is_missing(self):
        for row, words in (("| 1 | a | `b.cc` | `Good.*` | kept |", "no file b.cc"),
                           ("| 1 | a | - | `Bad.*` | kept |", "no test Bad.*"),
                           ("| 1 | a | - | `Good.IsBad` | kept |", "no test Good.IsBad"),
                           ("| 1 | a | - | `interop.mild.*` | kept |", "no test interop.mild.*"),
                           ("| 1 | a | - | `interop.*.mild` | kept |", "no test interop.*.mild"),
                           ("| 1 | a | - | `interop.hostile` | kept |", "no test interop.hostile"),
                           ("| 1 | a | - | - | kept |", "no test is named"),
                           ("| 1 | a | kept |", "a row has")):
            findings = self.findings(row)
            self.assertEqual(len(findings), 1, findings)
            self.assertIn(words, findings[0])


    def test_sections(self):
        def findings(sections):
            rows = "".join(f"| {section} | a | - | - | inherent |\n" for section in sections)
            with tree({threats.PAGE: f"## RFC 5042\n\n{rows}"}) as root:
                report = house.Report(root)
                threats.check_sections(report, root / threats.PAGE)
                return report.failures

        first, second, *others = threats.SECTIONS
        self.assertEqual(findings([f"{first}, {second}", "-", *others]), [])
        for sections, words in (((first, *others), f"no row is about section {second}"),
                                ((*threats.SECTIONS, "6.4.7"), "no attack in section 6.4.7")):
            with contextlib.redirect_stdout(io.StringIO()):
                found = findings(sections)
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])


class Includes(unittest.TestCase):
    def assert_finds(self, files, place, words):
        findings = include_findings(files)
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(place, findings[0])
        self.assertIn(words, findings[0])

    def test_against_the_direction(self):
        self.assert_finds(
            {"src/wire/a.h": '\n#include "device/b.h"\n', "src/device/b.h": ""},
            "src/wire/a.h:2", "wire may not include")

    def test_with_the_direction(self):
        files = {"src/wire/a.h": '#include "base/b.h"\n', "src/base/b.h": "#include <span>\n",
                 "src/cm/c.cc": '#include <rdma/rdma_cma.h>\n#include "device/d.h"\n',
                 "src/device/d.h": "", "tests/wire/t.cc": '#include "cm/c.cc"\n',
                 "src/cli/m.cc": "#include <weft/verbs.hpp>\n", "include/weft/verbs.hpp": ""}
        self.assertEqual(include_findings(files), [])

    def test_libfabric_is_seen_by_its_room_only(self):
        self.assertEqual(include_findings({"src/fabric/a.cc": "#include <rdma/fi_eq.h>\n"}), [])
        self.assert_finds({"src/dropin/a.cc": "#include <rdma/fabric.h>"},
                          "src/dropin/a.cc:1", "only fabric sees libfabric")
        self.assert_finds({"src/fabric/a.cc": "#include <rdma/rdma_cma.h>"},
                          "src/fabric/a.cc:1", "fabric may not include <rdma/rdma_cma.h>")

    def test_analyzer_does_not_share_the_beliefs_of_the_device(self):
        self.assert_finds({"src/capture/a.cc": '#include "iwarp/b.h"', "src/iwarp/b.h": ""},
                          "src/capture/a.cc:1", "capture may not include")

    def test_verbs_headers_below_the_seam(self):
        self.assert_finds({"src/iwarp/a.h": "#include <infiniband/verbs.h>"},
                          "src/iwarp/a.h:1", "<infiniband/verbs.h>")

    def test_io_in_iwarp_by_way_of_another_header(self):
        self.assert_finds({"src/iwarp/a.h": '\n\n#include "base/b.h"',
                           "src/base/b.h": "#include <unistd.h>"},
                          "src/iwarp/a.h:3", "<unistd.h>, by way of src/base/b.h")

    def test_iovec_in_iwarp_is_fine(self):
        self.assertEqual(include_findings({"src/iwarp/a.h": "#include <sys/uio.h>"}), [])

    def test_public_header_includes_a_private_one(self):
        self.assert_finds({"include/weft/verbs.hpp": '#include "base/b.h"', "src/base/b.h": ""},
                          "include/weft/verbs.hpp:1", "not installed")

    def test_against_the_direction_of_rooms(self):
        self.assert_finds(
            {"src/capture/tcp/a.h": '\n#include "capture/report/b.h"',
             "src/capture/report/b.h": ""},
            "src/capture/tcp/a.h:2", "capture/tcp may not include")
        self.assert_finds(
            {"src/capture/rpc/a.h": '#include "capture/b.h"', "src/capture/b.h": ""},
            "src/capture/rpc/a.h:1", "it may include findings, tcp, text")

    def test_with_the_direction_of_rooms(self):
        files = {"src/capture/sources/a.cc": '#include "capture/sources/a.h"\n'
                                             '#include "capture/tcp/b.h"\n#include "base/d.h"\n'
                                             "#include <weft/capture/e.hpp>\n",
                 "src/capture/sources/a.h": "", "src/capture/tcp/b.h": "", "src/base/d.h": "",
                 "src/capture/c.cc": '#include "capture/report/f.h"\n',
                 "src/capture/report/f.h": "", "include/weft/capture/e.hpp": "",
                 "src/cli/m.cc": '#include "capture/report/f.h"\n'}
        self.assertEqual(include_findings(files), [])

    def test_folder_that_is_no_room(self):
        self.assert_finds({"src/capture/attic/a.h": ""}, "src/capture/attic/a.h:1",
                          "attic is no room of capture")

    def test_rooms_of_capture_have_no_circle(self):
        remaining = dict(includes.ROOMS["capture"])
        while remaining:
            lowest = [room for room, below in remaining.items() if not below & set(remaining)]
            self.assertTrue(lowest, f"a circle among {sorted(remaining)}")
            for room in lowest:
                del remaining[room]

    def test_new_directory_without_a_layer(self):
        self.assert_finds({"src/misc/a.h": ""}, "src/misc/a.h:1", "belongs to no layer")

    def test_new_room_of_device(self):
        self.assertEqual(include_findings({"src/device/memory/a.h": "", "src/device/b.h": ""}), [])
        self.assert_finds({"src/device/misc/a.h": ""}, "src/device/misc/a.h:1",
                          "misc is no room of device")

    def test_cycle(self):
        self.assert_finds({"src/base/a.h": '#include "base/b.h"',
                           "src/base/b.h": '#include "base/a.h"'},
                          "src/base/b.h:1", "cycle")

    def test_commented_out(self):
        files = {"src/base/a.h": '// #include "wire/b.h"\n/*\n#include "wire/b.h"\n*/\n',
                 "src/wire/b.h": ""}
        self.assertEqual(include_findings(files), [])


CPP = """
#include <x>
namespace weft::wire {
inline constexpr int table[] = {1, 2};
template <typename T, typename U = std::vector<T>>
  requires(sizeof(T) > 1)
class [[nodiscard]] alignas(64) Thing final : public Base<T> {
 public:
  Thing(int a) : a_{a}, b_(a), c_{f(a)} {
    if (a) { g("}"); }
    h('{', 1'000);
  }
  int get() const { return a_; }
  bool operator==(const Thing&) const = default;

 private:
  int a_ = 0;
  struct { int x; } pair_{};
};
#if A
struct ibv_qp* create(struct ibv_pd* pd) {
#else
struct ibv_qp* create(void) {
#endif
  // }
  return nullptr;
}
Tree::Tree()
    : x_{1} {
  auto f = [&](int b) { return b; };
}
const char* raw = R"x( { " )x";
extern "C" {
int exported(void) noexcept { return 0; }
}
bool operator<(const Tree& a, const Tree& b) {
  return &a < &b;
}
}  // namespace weft::wire
"""


class Sizes(unittest.TestCase):
    def test_finds_each_function_with_its_lines(self):
        self.assertEqual(
            sizes.functions(CPP),
            [(9, 4, "Thing"), (13, 1, "get"), (21, 7, "create"), (28, 4, "Tree::Tree"),
             (34, 1, "exported"), (36, 3, "operator<")],
        )

    def test_says_nothing_about_code_it_does_not_understand(self):
        self.assertEqual(sizes.functions("int f() { if (x) {"), [])
        self.assertEqual(sizes.functions("} int f() { }"), [])

    def test_long_function(self):
        body = "int f() {\n" + "  g();\n" * 79 + "}\n"
        self.assertEqual(sizes.functions(body), [(1, 81, "f")])


class Classes(unittest.TestCase):
    def test_counts_data_members_only(self):
        text = """
        namespace weft {
        class Thing final : public Base<int, long> {
         public:
          explicit Thing(int a);
          std::function<void(int)> callback;
          int get() const { return a_; }
          bool operator==(const Thing&) const = default;
          enum class Kind { one, two };
          struct Part {
            int x = f(1);
          };
          class Other;
         private:
          using Name = int;
          static constexpr int limit = 3;
          friend class Other;
          void work();
          int a_ = 0;
          int (*table_)(int);
          alignas(64) std::atomic<int> b_{0};
          std::array<std::byte, size(3)> bytes_;
          unsigned bit_ : 1;
        };
        }
        """
        self.assertEqual(sizes.classes(text), [(10, "Thing::Part", 1), (3, "Thing", 5)])

    def findings(self, files, exceptions=None):
        with tree(files) as root:
            report, found = house.Report(root), sizes.Classes()
            for path in house.sources(root):
                found.add(includes.layer_of(root, path)[0], path,
                          *sizes.declarations(house.read(path)))
            found.check(report, exceptions or {})
            return report.failures

    def large(self, members):
        return "class A {\n" + "".join(f"  int a{number}_;\n" for number in range(members)) + "};"

    def test_too_many_members(self):
        self.assertEqual(self.findings({"src/cm/a.h": self.large(25)}), [])
        found = self.findings({"src/cm/a.h": self.large(26)})
        self.assertEqual(len(found), 1)
        self.assertIn("src/cm/a.h:1: cm::A has 26 data members", found[0])

    def test_too_many_source_files(self):
        files = {f"src/cm/a{number}.cc": f"int A::f{number}() {{ return 1; }}\n"
                 for number in range(4)} | {"src/cm/a.h": "class A { int a_; };"}
        self.assertEqual(self.findings(files), [])
        # Of another layer, hence of another class.
        files["src/message/b.cc"] = "void A::g() {}"
        self.assertEqual(self.findings(files), [])
        files["src/cm/b.cc"] = "A::~A() {}"
        self.assertIn("cm::A are in 5 source files", self.findings(files)[0])

    def test_exceptions_shrink(self):
        files = {"src/cm/a.h": self.large(30)}
        self.assertEqual(self.findings(files, {"cm::A": (30, 4)}), [])
        self.assertIn("at most 29", self.findings(files, {"cm::A": (29, 4)})[0])
        self.assertIn("needs no exception",
                      self.findings({"src/cm/a.h": self.large(25)}, {"cm::A": (30, 4)})[0])
        self.assertIn("there is no cm::B", self.findings({}, {"cm::B": (30, 4)})[0])


class Language(unittest.TestCase):
    CODE = """
    namespace weft::cm {
    class Base { int inherited(); };
    class Thing final : public weft::cm::Base { void work(); enum class Kind { one }; };
    class Other { void other(); };
    int free_function(int);
    }
    """

    def findings(self, comment):
        with tree({"src/cm/a.h": self.CODE, "src/cm/b.h": comment}) as root:
            report, names = house.Report(root), language.Names()
            for path in house.sources(root):
                names.add(house.code_only(house.read(path)))
            path = root / "src/cm/b.h"
            language.check_names(report, path, language.comments(house.read(path)), names,
                                 {"dlopen"})
            return report.failures

    def test_names_that_exist(self):
        for comment in ("// See Thing::work(), work() and `free_function()`.",
                        "/* Thing::Kind::one,\n   cm::Thing, Thing::inherited() */",
                        "// std::nothing(), dlopen(), dlopen(3) and missing(2)",
                        "}  // namespace weft::gone",
                        'auto text = "// Thing::missing()";',
                        "// https://example.org/a::b() ->missing() and x.missing()",
                        "// It says: word. Thing's member; a plain word"):
            with self.subTest(comment=comment):
                self.assertEqual(self.findings(comment), [])

    def test_names_that_do_not_exist(self):
        for comment, name in (("int a;  // see Thing::missing()", "Thing::missing()"),
                              ("// see Thing::other().", "Thing::other()"),
                              ("// `missing()`", "missing()"),
                              ("/* first\n * Thing::Missing */", "Thing::Missing"),
                              ("// Missing::work()", "Missing::work()")):
            with self.subTest(comment=comment):
                found = self.findings(comment)
                self.assertEqual(len(found), 1, found)
                self.assertIn(f"names {name},", found[0])

    def test_paths(self):
        with tree({"src/cm/a.h": ""}) as root:
            report = house.Report(root)
            language.check_paths(report, root / "src/cm/a.h", [
                (1, "see src/cm/a.h, `src/cm` and src/cm/*.h; fuzz/NAME_fuzz, build/src/no.h"),
                (2, "see src/cm/b.h.")])
            self.assertEqual(report.failures, ["src/cm/a.h:2: there is no src/cm/b.h"])

    def test_counts_the_idiom_in_comments_only(self):
        lines = language.comments('// Whoever has gone is told.\nauto nobody = "who";\n')
        counts = collections.Counter()
        language.count_idiom(None, lines, counts, [])
        self.assertEqual(counts, {"who, whoever, whom": 1, "has gone, goes away": 1,
                                  "is told, tells": 1})

    def test_plain_english_is_not_counted(self):
        counts = collections.Counter()
        language.count_idiom(None, [(1, "// Rejects the request, so that the peer does not wait "
                                        "for its timeout. Told apart by standing order.")],
                             counts, [])
        self.assertEqual(counts, {})


class Text(unittest.TestCase):
    def findings(self, name, content):
        with tree({name: content}) as root:
            report = house.Report(root)
            text.check(report, root / name)
            return report.failures

    def test_clean(self):
        self.assertEqual(
            self.findings("src/a.h", "#pragma once\n// TODO: close it, or the file leaks\n"), [])
        self.assertEqual(self.findings("src/a.cc", "// §" + "é" * 96 + "\n"), [])
        self.assertEqual(self.findings("src/a.cc", "// Where getrandom(2) is refused.\n"
                                       "Random& random() { return schedule_.random(); }\n"), [])
        self.assertEqual(self.findings("docs/a.md", "x" * 200 + " https://a.org/home/b\n"), [])

    def test_each_rule(self):
        for name, content, words in (
            ("src/a.cc", "x" * 101, "101 characters"),
            ("src/a.cc", "int\ta;", "tab"),
            ("src/a.h", "int a;", "pragma once"),
            ("src/a.cc", "// TODO", "without a reason"),
            ("src/a.cc", "// FIXME: later", "without a reason"),
            ("src/a.cc", "std::mt19937_64 engine(1);", "can be predicted"),
            ("src/a.cc", "std::ranlux24 engine;", "can be predicted"),
            ("src/a.cc", "std::linear_congruential_engine<int, 1, 2, 3> engine;",
             "can be predicted"),
            ("src/a.cc", "int a = rand();", "can be predicted"),
            ("src/a.cc", "long a = random();", "can be predicted"),
            ("src/a.cc", "long a = lrand48();", "can be predicted"),
            ("src/a.cc", "getrandom(&a, sizeof a, 0);", "may be refused"),
            ("src/a.cc", "#include <sys/random.h>", "may be refused"),
            ("docs/a.md", "see /" + "home/me/x", "path of one machine"),
            ("run.sh", "cd /" + "work/main", "path of one machine"),
        ):
            with self.subTest(words=words, content=content[:20]):
                findings = self.findings(name, content)
                self.assertEqual(len(findings), 1, findings)
                self.assertIn(f"{name}:1: ", findings[0])
                self.assertIn(words, findings[0])


class ByteOrder(unittest.TestCase):
    def findings(self, name, content):
        with tree({name: content}) as root:
            report = house.Report(root)
            byte_order.check(report, root / name)
            return report.failures

    def test_where_formats_are(self):
        code = "auto x = load_be<std::uint16_t>(at);\nByteReader in(bytes);\n"
        for name in ("src/wire/a.h", "src/stream/greeting_wire.cc", "src/base/byte_reader.h"):
            self.assertEqual(self.findings(name, code), [], name)
        self.assertEqual(self.findings("src/verbs/a.cc", "port = ntohs(in.sin_port);\n"), [])
        self.assertEqual(self.findings("src/stream/a.cc", "// load_be is not for here\n"), [])

    def test_anywhere_else(self):
        for name, code, word in (
            ("src/stream/a.cc", "store_le(at, x);", "store_le"),
            ("src/base/ring.h", "x = __builtin_bswap32(x);", "__builtin_bswap32"),
            ("src/message/wire.cc", "ByteWriter out(bytes);", "ByteWriter"),
            ("include/weft/stream/a.hpp", "if (std::endian::native == x)", "std::endian"),
            ("src/message/a.cc", "x = htonl(y);", "htonl"),
            ("src/wire/a.cc", "x = be64toh(y);", "be64toh"),
        ):
            with self.subTest(name=name):
                findings = self.findings(name, code)
                self.assertEqual(len(findings), 1, findings)
                self.assertIn(f"{name}:1: {word}: ", findings[0])


class Summary(unittest.TestCase):
    def summarise(self, *cases):
        return summary.summarise(ElementTree.fromstring(f"<testsuite>{''.join(cases)}</testsuite>"))

    def case(self, name, status, message=None, output=""):
        skipped = "" if message is None else f'<skipped message="{message}"/>'
        return (f'<testcase name="{name}" status="{status}">{skipped}'
                f"<system-out>{output}</system-out></testcase>")

    def test_counts_and_reasons(self):
        said, status = self.summarise(
            self.case("a", "run"),
            self.case("b", "notrun", "SKIP_REGULAR_EXPRESSION_MATCHED",
                      "[ RUN      ] b\nt.cc:3: Skipped\nno namespaces\nhere\n[  SKIPPED ] b"),
            self.case("c", "notrun", "SKIP_RETURN_CODE=77", "skipped: no tool\n"),
            self.case("d", "disabled", output="Disabled"))
        self.assertEqual(status, 0)
        self.assertIn("  b: no namespaces here\n", said)
        self.assertIn("  c: no tool\n", said)
        self.assertIn("  d: disabled\n", said)
        self.assertEqual(said.splitlines()[-1], "1 passed, 0 failed, 3 skipped")

    def test_a_test_that_could_not_run_failed(self):
        said, status = self.summarise(
            self.case("a", "run"),
            self.case("b", "notrun", "Unable to find executable"),
            self.case("c", "notrun", "Fixture dependency failed"),
            self.case("d", "fail"))
        self.assertEqual(status, 1)
        self.assertEqual(said.splitlines()[-1], "1 passed, 3 failed, 0 skipped")

    def test_a_failed_test_has_the_last_word(self):
        output = "\n".join(f"line {number}" for number in range(40))
        said, _ = self.summarise(self.case("a", "fail", output=output))
        self.assertIn("  a\n    line 28\n", said)
        self.assertIn("    line 39\n", said)

    def test_failing_and_then_skipping_is_failing(self):
        output = "[  FAILED  ] a\n[  SKIPPED ] a"
        _, status = self.summarise(
            self.case("a", "notrun", "SKIP_REGULAR_EXPRESSION_MATCHED", output))
        self.assertEqual(status, 1)

    def test_no_test_is_no_success(self):
        said, status = self.summarise()
        self.assertEqual(status, 1)
        self.assertEqual(said.splitlines()[-1], "0 passed, 0 failed, 0 skipped")
        self.assertEqual(self.summarise(self.case("a", "disabled"))[1], 1)


class FrontDoor(unittest.TestCase):
    def run_dev(self, *words):
        return subprocess.run([ROOT / "dev", *words], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=30, check=False)

    def test_help(self):
        for words in ((), ("help",), ("--help",), ("test", "--help")):
            done = self.run_dev(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith("usage: ./dev"))
            self.assertNotIn("\x1b", done.stdout)

    def test_misuse(self):
        for words in (("nonsense",), ("test", "--nonsense"), ("test", "-R"), ("build", "nonsense"),
                      ("test", "--asan", "--tsan"), ("fuzz", "0"), ("setup", "x", "y")):
            done = self.run_dev(*words)
            self.assertEqual(done.returncode, 2, f"{words}: {done.stdout}{done.stderr}")
            self.assertIn("./dev help", done.stderr)

    def test_scripts_parse(self):
        for script in ("dev", ".ci/run"):
            subprocess.run(["bash", "-n", ROOT / script], check=True)

    def test_packages_are_named_once_per_group(self):
        groups = {}
        for line in house.read(ROOT / "cmake/packages.txt").splitlines():
            if line.startswith("["):
                group = groups.setdefault(line.strip("[]"), [])
            elif line and not line.startswith("#"):
                self.assertNotIn(line, group)
                self.assertRegex(line, r"^[a-z0-9][a-z0-9+.-]+$")
                group.append(line)
        self.assertEqual(set(groups), {"build", "demo", "fabric", "bench", "plots", "test",
                                       "kernel", "debian", "format", "tidy", "fuzz", "package",
                                       "docs", "cross"})


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
