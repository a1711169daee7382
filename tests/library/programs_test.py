"""The code in README.md, and programs with plain settings, compile without a warning.

Run with --compiler PROGRAM --c-compiler PROGRAM.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = argparse.Namespace()
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}"]
# What a program around the blocks would include and declare.
BEFORE = """#include <array>
#include <chrono>
#include <span>
#include <string_view>
void log_line(std::string_view object, std::string_view message);
"""


def blocks(language):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def program(block):
    """A block as a translation unit: `// Here` and `// There` begin a function each."""
    top, parts = [], [[]]
    for line in block.splitlines():
        if line.startswith(("#include", "using namespace")):
            top.append(line)
        elif line in ("// Here", "// There"):
            parts.append([])
        else:
            parts[-1].append(line)
    functions = [f"void part_{number}() {{\n" + "\n".join(part) + "\n}\n"
                 for number, part in enumerate(parts) if "".join(part).strip()]
    uses = [f"void all();\nvoid all() {{ {' '.join(f'part_{n}();' for n in range(len(parts)))} }}"]
    head = [f"static void part_{number}();" for number in range(len(parts))]
    empty = [f"void part_{number}() {{}}" for number, part in enumerate(parts)
             if not "".join(part).strip()]
    chrono = ["using namespace std::chrono_literals;"]
    return BEFORE + "\n".join([*top, *chrono, *head, *functions, *empty, *uses]) + "\n"


class Programs(unittest.TestCase):
    def compile(self, compiler, name, text, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.write_text(text, encoding="utf-8")
            done = subprocess.run([compiler, *STRICT, *options, str(path)], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{text}")

    def test_blocks_of_the_readme(self):
        found = blocks("cpp")
        self.assertGreaterEqual(len(found), 3)
        for block in found:
            with self.subTest(block.splitlines()[0]):
                # The results of a short example are not used.
                self.compile(SETTINGS.compiler, "block.cc", program(block), "-std=c++20",
                             "-Wno-unused-variable", "-Wno-unused-but-set-variable")

    def test_block_in_c(self):
        for block in blocks("c"):
            text = ("#include <stdio.h>\n#include <weft.h>\nvoid block(void);\n"
                    f"void block(void) {{\n{block}\n}}\n")
            self.compile(SETTINGS.c_compiler, "block.c", text, "-std=c99")

    def test_headers_with_both_compilers_and_all_warnings(self):
        """All public headers in one file; each alone, too, in the long run."""
        public = ROOT / "include"
        headers = sorted(path.relative_to(public) for path in public.rglob("*.hpp"))
        self.assertGreater(len(headers), 80)
        # What needs packages of its own to compile.
        plain = [path for path in headers if "asio" not in path.name and "asio" not in path.parts]
        warnings = ["-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wold-style-cast"]
        for compiler in {SETTINGS.compiler, *filter(None, [shutil.which("clang++")])}:
            with self.subTest(compiler):
                text = "".join(f"#include <{path}>\n" for path in plain)
                self.compile(compiler, "all.cc", text, "-std=c++20", *warnings)
            if "WEFT_TEST_LONG" not in os.environ:
                continue
            for path in plain:
                with self.subTest(f"{compiler} {path}"):
                    self.compile(compiler, "one.cc", f"#include <{path}>\n", "-std=c++20",
                                 *warnings)

    def test_headers_without_exceptions(self):
        """A program may be compiled with -fno-exceptions; then what the library throws ends it."""
        text = "".join(f"#include <weft/{name}.hpp>\n"
                       for name in ("verbs", "connection", "message", "stream", "capture"))
        self.compile(SETTINGS.compiler, "all.cc", text + "int main() {}\n", "-std=c++20",
                     "-fno-exceptions")

    def test_settings_that_name_some_members(self):
        text = (pathlib.Path(__file__).parent / "settings.cc").read_text(encoding="utf-8")
        self.compile(SETTINGS.compiler, "settings.cc", text, "-std=c++20")

    def test_two_layers_in_one_file(self):
        text = (pathlib.Path(__file__).parent / "namespaces.cc").read_text(encoding="utf-8")
        self.compile(SETTINGS.compiler, "namespaces.cc", text, "-std=c++20")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--c-compiler", default="cc")
    SETTINGS, others = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *others])
