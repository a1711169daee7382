"""The manual pages: well formed, and of one mind with the program's own help."""

import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
import libraries  # pylint: disable=wrong-import-position

COMMANDS = ["run", "dissect", "doctor", "top", "trace"]


def pages():
    return {path.stem: path for path in (libraries.BUILD / "docs/man").glob("*.1")}


def shown(page):
    """The page as a reader sees it, in long lines and without bold and underlining."""
    libraries.needs("mandoc")
    text = libraries.run("mandoc", "-T", "ascii", "-O", "width=1000", page).stdout
    return re.sub(".\b", "", text)


def section(text, title):
    return re.search(rf"^{title}\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL).group(1)


def help_on(*words):
    return libraries.run(libraries.WEFT, *words).stdout


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


class Manuals(unittest.TestCase):
    def test_each_command_has_its_page(self):
        self.assertEqual(set(pages()), {"weft", *(f"weft-{command}" for command in COMMANDS)})

    def test_mandoc_finds_nothing(self):
        libraries.needs("mandoc")
        for page in pages().values():
            done = libraries.run("mandoc", "-T", "lint", "-W", "warning", page)
            self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_groff_finds_nothing(self):
        libraries.needs("man")
        for page in pages().values():
            done = libraries.run("man", "--warnings", "-l", page)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_options_are_those_of_the_help(self):
        for command in COMMANDS:
            page = shown(pages()[f"weft-{command}"])
            wanted = options_in(section(help_on(command, "--help"), "Options:"))
            self.assertGreater(len(wanted), 2)
            self.assertEqual(options_in(section(page, "OPTIONS")), wanted)
            self.assertLessEqual(options_in(page), wanted, "in prose and examples")

    def test_each_option_is_explained(self):
        for command in COMMANDS:
            entries = section(shown(pages()[f"weft-{command}"]), "OPTIONS")
            for option in options_in(entries):
                entry = rf"(^|\n) *(-\w, )?{option}\b[^\n]*?(  |\n +)[A-Z][^\n]+\.\n"
                self.assertRegex(entries, entry)

    def test_commands_are_those_of_the_help(self):
        listed = set(re.findall(r"^  (\w+) ", help_on("--help").split("Subcommands:")[1],
                                re.MULTILINE))
        page = section(shown(pages()["weft"]), "DESCRIPTION")
        self.assertLess(set(COMMANDS), listed)
        self.assertEqual(set(re.findall(r"\n     (\w+)(?=  |\n)", page)), listed)

    def test_variables_are_those_of_the_help(self):
        wanted = set(re.findall(r"^  (WEFT_\w+)$", help_on("help", "environment"), re.MULTILINE))
        listed = section(shown(pages()["weft"]), "ENVIRONMENT")
        self.assertEqual(set(re.findall(r"\n     (WEFT_\w+)", listed)), wanted)
        for page in pages().values():
            self.assertLessEqual(set(re.findall(r"WEFT_\w+", shown(page))), wanted)

    def test_examples_are_understood(self):
        """Options of the examples in README and docs, too, are options that exist."""
        root = pathlib.Path(__file__).parents[2]
        for document in [root / "README.md", *root.glob("docs/*.md")]:
            for command, rest in re.findall(r"^ *weft (run|dissect|doctor)((?: .*)?)$",
                                            document.read_text(), re.MULTILINE):
                ours = rest.split(" -- ")[0].split("#")[0]
                self.assertLessEqual(options_in(ours), options_in(help_on(command, "--help")),
                                     document.name)


class Pages(unittest.TestCase):
    """What makes the pages."""

    def fill(self, help_text):
        script = pathlib.Path(__file__).parents[2] / "docs/man/pages.py"
        code = (f"import sys; sys.path.insert(0, {str(script.parent)!r}); import pages;"
                f"pages.output_of = lambda *_: {help_text!r}; print(pages.options([], ['x']))")
        return subprocess.run([sys.executable, "-B", "-c", code], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_an_option_of_each_form(self):
        made = self.fill("Options:\n"
                         "  -q,--quiet                  Say less\n"
                         "  --port NUMBER:INT in [1 - 65535]=20886\n"
                         "                              A port\n"
                         "  --peer HOST Excludes: --serve\n"
                         "                              .dots are text\n").stdout
        self.assertEqual(made, ".Bl -tag -width Ds\n"
                         ".It Fl q , Fl Fl quiet\nSay less.\n"
                         ".It Fl Fl port Ar number\nA port.\nDefault: 20886.\n"
                         ".It Fl Fl peer Ar host\n\\&.dots are text.\nNot with \\-\\-serve.\n"
                         ".El\n")

    def test_what_it_cannot_read_is_an_error(self):
        self.assertNotEqual(self.fill("Options:\n  quiet  Say less\n").returncode, 0)


if __name__ == "__main__":
    sys.exit(libraries.main())
