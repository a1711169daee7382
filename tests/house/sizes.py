"""Files of at most 600 lines, functions of at most 80. Warns from 350 and 40."""

import re
import sys

import house

FILE_LINES, FILE_LINES_WARN = 600, 350
FUNCTION_LINES, FUNCTION_LINES_WARN = 80, 40

_GROUP = re.compile(r"\([^()]*\)")
_TEMPLATE = re.compile(r"<[^<>]*>")
_ATTRIBUTE = re.compile(r"\b(?:alignas|__attribute__|requires)\s*@|\[\[.*?\]\]")
_TYPE = re.compile(r"\b(?:class|struct|union|enum)\b")


def without_preprocessor(code):
    """Blanks directives, and every branch of a conditional but the first."""
    lines, taken, continued = [], [], False
    for line in code.split("\n"):
        directive = re.match(r"\s*#\s*(\w*)", line)
        if directive or continued:
            word = directive.group(1) if directive and not continued else ""
            continued = line.endswith("\\")
            if word in ("if", "ifdef", "ifndef"):
                taken.append(True)
            elif word in ("else", "elif") and taken:
                taken[-1] = False
            elif word == "endif" and taken:
                taken.pop()
            lines.append("")
        else:
            lines.append(line if all(taken) else "")
    return "\n".join(lines)


def closing(code, at):
    """The position of the brace that closes the one at `at`, or None."""
    depth = 0
    for position in range(at, len(code)):
        if code[position] == "{":
            depth += 1
        elif code[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return None


def reduced(head):
    """The head without template arguments, with @ for each pair of parentheses."""
    previous = None
    while head != previous:
        previous = head
        head = _TEMPLATE.sub("", _GROUP.sub("@", head))
    return _ATTRIBUTE.sub("", head).strip()


def kind_of_brace(head):
    """What the brace after `head`, the text since the last declaration, opens."""
    head = reduced(head)
    if re.search(r"\bnamespace\b[^@]*$", head) or re.search(r'\bextern\s*"[^"]*"$', head):
        return "scope"
    if re.search(r"(?:[=,(\[]|\breturn)$", head):
        return "initializer"
    if _TYPE.search(head) and "@" not in head and "=" not in head:
        return "scope"
    if re.search(r"@[^:?]*(?<!:):(?!:)", head) and re.search(r"\w$", head):
        return "initializer"  # of a member, in a constructor's list
    return "function" if "@" in head else "initializer"


def functions(text):
    """(first line, lines, name) of each function that is not inside another one."""
    code = without_preprocessor(house.code_only(text))
    found, position, start, depth = [], 0, 0, 0
    head = ""  # of the declaration that began at `start`, without the braces of initializers
    while position < len(code):
        character = code[position]
        if character == "{":
            kind = kind_of_brace(head)
            if kind == "scope":
                head, start, depth = "", position + 1, depth + 1
            else:
                end = closing(code, position)
                if end is None:
                    return []  # not understood: say nothing rather than something wrong
                if kind == "function":
                    first = start + len(code[start:position]) - len(code[start:position].lstrip())
                    line = code.count("\n", 0, first) + 1
                    name = re.search(r"([\w:~]+|operator\W+)\s*\(", head)
                    found.append((line, code.count("\n", first, end) + 1,
                                  name.group(1) if name else "function"))
                    head, start = "", end + 1
                else:
                    head += "{}"
                position = end
        elif character in ";}":
            if character == "}":
                depth -= 1
                if depth < 0:
                    return []
            head, start = "", position + 1
        else:
            if character == ":" and re.fullmatch(r"\s*(public|private|protected)\s*", head):
                head, start = "", position + 1
            else:
                head += character
        position += 1
    return found


def main():
    root = house.arguments(__doc__).parse_args().root.resolve()
    report = house.Report(root)
    paths = house.sources(root)
    for path in paths:
        text = house.read(path)
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            report.fail(path, lines, f"{lines} lines; a source file has at most {FILE_LINES}")
        elif lines > FILE_LINES_WARN:
            report.warn(path, lines, f"{lines} lines; most files have less than {FILE_LINES_WARN}")
        for line, length, name in functions(text):
            if length > FUNCTION_LINES:
                report.fail(path, line, f"{name} has {length} lines; a function has at most "
                                        f"{FUNCTION_LINES}")
            elif length > FUNCTION_LINES_WARN:
                report.warn(path, line, f"{name} has {length} lines; few functions have more than "
                                        f"{FUNCTION_LINES_WARN}")
    return report.finish(len(paths))


if __name__ == "__main__":
    sys.exit(main())
