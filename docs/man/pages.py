"""Makes the manual pages: completes a template with the help text of the program.

Usage: pages.py TEMPLATE PAGE -- PROGRAM..., where PROGRAM may be an emulator with its arguments.

NAME.1.in may contain, each in a line of its own: @options@ (of `weft COMMAND --help` for
weft-COMMAND), @commands@, and @environment@, @faults@, @filters@, @check@ and @top@ (of `weft
help TOPIC`).
"""

import os
import pathlib
import re
import subprocess
import sys


def output_of(program, *words):
    plain = {name: value for name, value in os.environ.items()
             if not name.startswith("WEFT_") and name != "COLUMNS"}
    return subprocess.run([*program, *words], check=True, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, env=plain).stdout


def section(text, title):
    """The entries below `title:`, each as [name, meaning]."""
    found = re.search(rf"^{title}:\n((?: .*\n)+)", text, re.MULTILINE)
    entries = []
    for line in found.group(1).splitlines() if found else []:
        if line.startswith("   "):  # more about the entry above
            entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
        else:
            name, _, meaning = line.strip().partition("  ")
            entries.append([name, meaning.strip()])
    return entries


def prose(text):
    """Text for mdoc: one sentence per line, and no line that mdoc takes for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    lines = re.sub(r"(?<=[.:;]) (?=[A-Z])", "\n", text).split("\n")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in lines)


def sentence(text):
    return text if text.endswith((".", "!", "?")) else text + "."


def heading(spec):
    """`-q,--quiet`, `--port NUMBER:INT in [1 - 65535]=20886`, `--peer HOST Excludes: --serve` or
    `--clock-offset FILE=SECONDS ...`, which may be given several times."""
    found = re.fullmatch(r"(-[^ ]+)(?: (?!Excludes:|Needs:)([^ :=]+(?:=[A-Z]+)?)[^=]*?(?:=(\S+))?)?"
                         r"(?: \.\.\.)?(?: (Excludes|Needs): (.*))?", spec)
    if not found:
        raise SystemExit(f"pages.py: cannot read the option '{spec}'")
    names, argument, standard, relation, others = found.groups()
    words = []
    for name in names.split(","):
        flag = f"Fl Fl {name[2:]}" if name.startswith("--") else f"Fl {name[1:]}"
        words.append(flag.replace("-", "\\-"))
    head = " , ".join(words)
    if argument:
        head += f" Ar {argument.lower()}"
    more = f" Default: {standard}." if standard else ""
    if relation == "Excludes":
        more += f" Not with {others}."
    elif relation:
        more += f" Only with {others}."
    return head, more


def options(program, command):
    lines = [".Bl -tag -width Ds"]
    for spec, meaning in section(output_of(program, *command, "--help"), "Options"):
        head, more = heading(spec)
        lines += [f".It {head}", prose(sentence(meaning) + more)]
    return "\n".join([*lines, ".El"])


def commands(program):
    lines = [".Bl -tag -width Ds"]
    for name, meaning in section(output_of(program, "--help"), "Subcommands"):
        lines += [f".It Cm {name}", prose(sentence(meaning))]
        if pathlib.Path(__file__).with_name(f"weft-{name}.1.in").exists():
            lines += ["See", f".Xr weft-{name} 1 ."]
    return "\n".join([*lines, ".El"])


def environment(program):
    text = output_of(program, "help", "environment")
    paragraphs = re.split(r"\n\n  (\w+)\n", "\n" + text)
    lines = [prose(" ".join(paragraphs[0].split())), ".Bl -tag -width Ds"]
    for name, meaning in zip(paragraphs[1::2], paragraphs[2::2]):
        lines += [f".It Ev {name}", prose(" ".join(meaning.split()))]
    return "\n".join([*lines, ".El"])


def literal(program, topic):
    """The text as it is: its layout is part of what it says."""
    text = output_of(program, "help", topic).rstrip()
    return "\n".join([".Bd -literal", prose_lines(text), ".Ed"])


def prose_lines(text):
    """Each line as mdoc takes it: without meaning in a leading dot or a backslash."""
    return "\n".join(re.sub(r"^(?=[.'])", r"\\&", line.replace("\\", r"\e"))
                     for line in text.split("\n"))


def main():
    template, page, separator, *program = sys.argv[1:]
    if separator != "--" or not program:
        raise SystemExit(__doc__)
    name = pathlib.Path(template).name.removesuffix(".1.in")
    text = pathlib.Path(template).read_text().split("\n", 1)[1]
    makers = {"@options@": lambda: options(program, name.split("-")[1:]),
              "@commands@": lambda: commands(program),
              "@environment@": lambda: environment(program),
              "@faults@": lambda: literal(program, "faults"),
              "@filters@": lambda: literal(program, "filters"),
              "@check@": lambda: literal(program, "check"),
              "@top@": lambda: literal(program, "top")}
    filled = "\n".join(makers[line]() if line in makers else line for line in text.split("\n"))
    pathlib.Path(page).write_text(filled)


if __name__ == "__main__":
    main()
