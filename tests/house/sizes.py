"""Limits for the sizes of files, functions and classes.

A file has at most 600 lines, a function 80; more than 350 and 40 is a warning. A class has at most
25 data members, and its functions are in at most 4 source files: cutting a large class into many
files does not make it smaller.
"""

import re
import sys

import house
import includes

FILE_LINES, FILE_LINES_WARN = 600, 350
FUNCTION_LINES, FUNCTION_LINES_WARN = 80, 40
CLASS_MEMBERS, CLASS_SOURCES = 25, 4

# Classes that are still too large: their data members and source files, which must not become more.
# An entry that is not needed any more is a finding; no new ones are made.
EXCEPTIONS = {
}

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


def name_of_class(head):
    """The name in the head of a class, struct or union; None for other scopes."""
    head = reduced(head)
    found = re.search(r"\b(class|struct|union)\b([^:]*(?:::[^:]+)*)", head)
    if not found or re.search(r"\benum\b", head):
        return None
    words = [word for word in found.group(2).split() if word != "final"]
    return words[-1] if words else ""


_NO_DATA = re.compile(r"(?:using|typedef|friend|static|template|extern|static_assert|"
                      r"constexpr static|inline static)\b")


def data_members(statement):
    """How many data members a statement in the body of a class declares."""
    head = reduced(re.sub(r"\s+", " ", statement)).strip()
    if not head or _NO_DATA.match(head) or re.search(r"\boperator\b", head):
        return 0
    left = head.split("=")[0].strip()
    if re.fullmatch(r"(?:class|struct|union|enum(?: class| struct)?) [\w:]+(?: : [\w:]+)?", left):
        return 0  # a declaration
    if "@" in left:  # a function, or a pointer to one: a table of those is an interface, not state
        return 0
    return left.count(",") + 1


def declarations(text):
    """The functions and classes of a file, as (functions, classes).

    A function is (first line, lines, name), where it is not inside another one. A class is
    (line, name, data members), the name with those of the classes around it.
    """
    code = without_preprocessor(house.code_only(text))
    found, classes, position, start = [], [], 0, 0
    scopes = []  # of each open brace: [line, name or None, data members]
    head = ""  # of the declaration that began at `start`, without the braces of initializers
    while position < len(code):
        character = code[position]
        if character == "{":
            kind = kind_of_brace(head)
            if kind == "scope":
                line = code.count("\n", 0, position) + 1
                scopes.append([line, name_of_class(head), 0])
                head, start = "", position + 1
            else:
                end = closing(code, position)
                if end is None:
                    return [], []  # not understood: report nothing rather than something wrong
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
            if character == ";" and scopes and scopes[-1][1] is not None:
                scopes[-1][2] += data_members(head)
            if character == "}":
                if not scopes:
                    return [], []
                line, name, members = scopes.pop()
                if name:
                    around = [scope[1] for scope in scopes if scope[1]]
                    classes.append((line, "::".join([*around, name]), members))
            head, start = "", position + 1
        else:
            if character == ":" and re.fullmatch(r"\s*(public|private|protected)\s*", head):
                head, start = "", position + 1
            else:
                head += character
        position += 1
    return found, classes


def functions(text):
    return declarations(text)[0]


def classes(text):
    return declarations(text)[1]


def check_file(report, path, text, found):
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        report.fail(path, lines, f"{lines} lines; a source file has at most {FILE_LINES}")
    elif lines > FILE_LINES_WARN:
        report.warn(path, lines, f"{lines} lines; most files have less than {FILE_LINES_WARN}")
    for line, length, name in found:
        if length > FUNCTION_LINES:
            report.fail(path, line, f"{name} has {length} lines; a function has at most "
                                    f"{FUNCTION_LINES}")
        elif length > FUNCTION_LINES_WARN:
            report.warn(path, line, f"{name} has {length} lines; few functions have more than "
                                    f"{FUNCTION_LINES_WARN}")


class Classes:
    """Collects the classes of all files, and the source files that define their functions."""

    def __init__(self):
        self.declared = {}  # by layer::name: (path, line, data members)
        self.sources = {}  # by layer::name: set of paths

    def add(self, layer, path, functions_found, classes_found):
        for line, name, members in classes_found:
            key = f"{layer}::{name}"
            if key not in self.declared or members > self.declared[key][2]:
                self.declared[key] = (path, line, members)
        if path.suffix == ".cc":
            for _, _, name in functions_found:
                key = f"{layer}::{name.rpartition('::')[0]}"
                self.sources.setdefault(key, set()).add(path)

    def check(self, report, exceptions):
        here = report.root / "tests/house/sizes.py"
        for key, (path, line, members) in sorted(self.declared.items()):
            sources = len(self.sources.get(key, ()))
            may_members, may_sources = exceptions.get(key, (CLASS_MEMBERS, CLASS_SOURCES))
            if members > may_members:
                report.fail(path, line, f"{key} has {members} data members; a class has at most "
                                        f"{may_members}: give a part of its state a class")
            if sources > may_sources:
                report.fail(path, line, f"the functions of {key} are in {sources} source files; "
                                        f"at most {may_sources}: give a part of its work a class")
            if key in exceptions and members <= CLASS_MEMBERS and sources <= CLASS_SOURCES:
                report.fail(path, line, f"{key} needs no exception any more: take it out of "
                                        "tests/house/sizes.py")
        for key in sorted(set(exceptions) - set(self.declared)):
            report.fail(here, 1, f"there is no {key} any more: take its exception out")


def main():
    root = house.arguments(__doc__).parse_args().root.resolve()
    report = house.Report(root)
    all_classes = Classes()
    paths = house.sources(root)
    for path in paths:
        text = house.read(path)
        functions_found, classes_found = declarations(text)
        check_file(report, path, text, functions_found)
        all_classes.add(includes.layer_of(root, path)[0], path, functions_found, classes_found)
    all_classes.check(report, EXCEPTIONS)
    return report.finish(len(paths))


if __name__ == "__main__":
    sys.exit(main())
