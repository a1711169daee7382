"""A filter for Doxygen: turns the comments of a public header into what Doxygen reads.

The headers have plain comments: one above a declaration or behind it belongs to it, the one at the
top to the file, and indented lines are code.
"""

import re
import sys

SECTION = re.compile(r"\s*// ---")
WHOLE = re.compile(r"(\s*)//( .*)?$")
BEHIND = re.compile(r"(.*\S)  // (.*)$")
CODE = re.compile(r"   +\S")


def escaped(text):
    """Commands, tags and links of Doxygen are text in our comments."""
    return re.sub(r"([\\@<>#&$])", r"\\\1", text).replace("::", "\\::")


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
    out, comment, indent, top = [], [], "", True
    for line in [*text.split("\n"), "end"]:
        whole = None if SECTION.match(line) else WHOLE.match(line)
        if whole:
            indent = whole.group(1)
            comment.append(whole.group(2) or "")
            continue
        if comment:
            start = ["@file"] if top else []
            out += [f"{indent}/// {entry}" for entry in start + block(comment)]
            comment, top = [], False
        behind = BEHIND.match(line)
        if behind and re.search(r"[;,\w)]$", behind.group(1)) and not behind.group(1).endswith("}"):
            line = f"{behind.group(1)}  ///< {escaped(behind.group(2))}"
        out.append(line)
    return "\n".join(out[:-1])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(converted(header.read()))
