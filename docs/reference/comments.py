"""A filter for Doxygen: turns the comments of a public header into what Doxygen reads.

The headers have plain comments: one above a declaration or behind it belongs to it, the one at the
top to the file, and indented lines are code. A comment above a function also belongs to the
functions of the same name that follow it without a line between them.

In the headers of the C interface, whose comments are blocks, a comment above a member of a
structure also belongs to the members below it that have none. What the interface declares is linked
where a comment names it.
"""

import pathlib
import re
import sys

SECTION = re.compile(r"\s*// ---")
WHOLE = re.compile(r"(\s*)//( .*)?$")
BEHIND = re.compile(r"(.*\S)  // (.*)$")
CODE = re.compile(r"   +\S")


def escaped(text):
    """Commands, tags and links of Doxygen are text in our comments."""
    return re.sub(r"([\\@<>#&$])", r"\\\1", text).replace("::", "\\::")


NAME = re.compile(r"(operator\W+|[A-Za-z_]\w*)\(")
NO_NAMES = {"requires", "noexcept", "decltype", "alignas", "sizeof", "explicit"}


def function_name(lines):
    """The name of the function whose declaration begins with these lines, or None."""
    text = re.sub(r"\[\[.*?\]\]", "", " ".join(line.strip() for line in lines))
    names = (match.group(1) for match in NAME.finditer(text.split(";")[0]))
    return next((name for name in names if name not in NO_NAMES), None)


class Shared:
    """The comment of the function above, for the next ones of its name."""

    def __init__(self, comment, indent, lines):
        self.comment, self.indent, self.name = comment, indent, function_name(lines)
        self.in_template = lines[0].lstrip().startswith("template")

    def continues_with(self, lines):
        """Whether the line does not end the group; sets `repeat` where a declaration begins."""
        line = lines[0]
        indent = line[:len(line) - len(line.lstrip())]
        self.repeat = False
        if len(indent) > len(self.indent) or line.lstrip().startswith("}"):
            return bool(line.strip())
        if self.in_template:
            self.in_template = False
            return True
        self.in_template = line.lstrip().startswith("template")
        self.repeat = indent == self.indent and function_name(lines) == self.name
        return self.repeat


def block(lines):
    """The lines of one comment, without their slashes; an indented run of them is code."""
    made, code = [], False
    for line in lines:
        if bool(CODE.match(line)) != code:
            made.append("~~~" if code else "~~~{.txt}")
            code = not code
        made.append(line.rstrip() if code else escaped(line.strip()))
    return made + (["~~~"] if code else [])


def converted(text):
    out, comment, indent, top, shared = [], [], "", True, None
    lines = [*text.split("\n"), "end"]
    for number, line in enumerate(lines):
        whole = None if SECTION.match(line) else WHOLE.match(line)
        if whole:
            indent = whole.group(1)
            comment.append(whole.group(2) or "")
            continue
        if comment:
            start = ["@file"] if top else []
            made = [f"{indent}/// {entry}" for entry in start + block(comment)]
            out += made
            shared = None if top else Shared(made, indent, lines[number:number + 8])
            shared = shared if shared and shared.name else None
            comment, top = [], False
        elif shared and not shared.continues_with(lines[number:number + 8]):
            shared = None
        elif shared and shared.repeat:
            out += shared.comment
        behind = BEHIND.match(line)
        if behind and re.search(r"[;,\w)]$", behind.group(1)) and not behind.group(1).endswith("}"):
            line = f"{behind.group(1)}  ///< {escaped(behind.group(2))}"
        out.append(line)
    return "\n".join(out[:-1])


C_HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "weft" / "c"
C_WHOLE = re.compile(r"(\s*)/\* ?(.*)$")
C_BEHIND = re.compile(r"(.*\S)\s*/\* (.*) \*/$")
C_FUNCTION = r"^WEFT_C_API\b[^;(]*?(weft_\w+)\("
C_NAMES = (C_FUNCTION, r"^\} (weft_\w+);", r"^typedef struct \w+ (weft_\w+);",
           r"^#define (WEFT_\w+)", r"^(?:enum \{|\s*) ?(WEFT_\w+) = ")


def declared(*patterns):
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(C_HEADERS.glob("*.h")))
    return {name for pattern in patterns for name in re.findall(pattern, text, re.M)}


def c_functions():
    """The functions that the headers of the C interface declare."""
    return declared(C_FUNCTION)


def c_names():
    """All that they declare: functions, types, values and macros."""
    return declared(*C_NAMES)


def linked(text, names):
    """The text for Doxygen, with references in place of these names."""
    def reference(match):
        name = match.group(1)
        return f'@ref {name} "{match.group(0)}"' if name in names else match.group(0)
    return re.sub(r"\b(weft_\w+|WEFT_\w+)\b(?:\(\))?", reference, escaped(text))


def c_converted(text, names):
    """A header of the C interface."""
    out, lines, top, above = [], iter(text.split("\n")), True, None
    for line in lines:
        whole, behind = C_WHOLE.match(line), C_BEHIND.match(line)
        if whole:
            indent, said = whole.group(1), [whole.group(2)]
            while not said[-1].rstrip().endswith("*/"):
                said.append(re.sub(r"^\s*\*(?!/) ?", "", next(lines)))
            said[-1] = said[-1].rstrip().removesuffix("*/").rstrip()
            if said[0].startswith("---"):
                continue
            made = [linked(entry, names) for entry in said]
            body = f"\n{indent} * ".join(made).rstrip(" *\n")
            file = "@file\n * " if top else ""
            above = f"{indent}/** {file}{body} */"
            out.append(above)
            top = False
            continue
        if behind:
            line = f"{behind.group(1)} /**< {linked(behind.group(2), names)} */"
        elif above and line.startswith("  ") and line.endswith(";") and out[-1] != above:
            out.append(above)
        if behind or not line.startswith("  "):
            above = None
        out.append(line)
    return "\n".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        content = header.read()
    if sys.argv[1].endswith(".h"):
        sys.stdout.write(c_converted(content, c_names()))
    else:
        sys.stdout.write(converted(content))
