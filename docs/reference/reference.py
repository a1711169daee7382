"""Writes the reference of the library in C++ and C to DIRECTORY/html, and that of the Python
package to DIRECTORY/html/python. A warning of Doxygen is an error, and so are a layer with more
functions without a comment than UNDOCUMENTED allows, and anything of the C interface without one.

Usage: reference.py DIRECTORY
"""

import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import comments

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# The public functions of each layer that have no comment yet. A number may only become smaller; a
# layer that is not named has none.
UNDOCUMENTED = {}


def settings(directory):
    return {
        "PROJECT_NAME": "Weft",
        "PROJECT_BRIEF": '"RDMA on any Linux machine"',
        "OUTPUT_DIRECTORY": f'"{directory}"',
        "INPUT": f'"{ROOT / "include"}" "{HERE / "main.md"}"',
        "USE_MDFILE_AS_MAINPAGE": f'"{HERE / "main.md"}"',
        "FILE_PATTERNS": "*.hpp *.h *.md",
        "RECURSIVE": "YES",
        "FULL_PATH_NAMES": "YES",
        "STRIP_FROM_PATH": f'"{ROOT / "include"}"',
        "STRIP_FROM_INC_PATH": f'"{ROOT / "include"}"',
        "FILTER_PATTERNS": " ".join(f'"{pattern}={sys.executable} -B {HERE / "comments.py"}"'
                                    for pattern in ("*.hpp", "*.h")),
        "FILTER_SOURCE_FILES": "NO",
        "EXCLUDE_SYMBOLS": "*::detail *::detail::* *::asio_detail *::asio_detail::*",
        "EXTRACT_ALL": "YES",
        "MACRO_EXPANSION": "YES",
        "EXPAND_ONLY_PREDEF": "YES",
        "PREDEFINED": "WEFT_API= WEFT_C_API= __cplusplus",
        "TYPEDEF_HIDES_STRUCT": "YES",
        "MULTILINE_CPP_IS_BRIEF": "NO",
        "JAVADOC_AUTOBRIEF": "YES",
        "MARKDOWN_SUPPORT": "YES",
        "AUTOLINK_SUPPORT": "NO",
        "SORT_MEMBER_DOCS": "NO",
        "GENERATE_LATEX": "NO",
        "GENERATE_XML": "YES",
        "HAVE_DOT": "NO",
        "QUIET": "YES",
        "WARNINGS": "YES",
        "WARN_IF_DOC_ERROR": "YES",
        "WARN_AS_ERROR": "FAIL_ON_WARNINGS",
    }


def python_settings(directory):
    """The modules have the names of C++ namespaces, so that they need pages of their own."""
    return {
        "PROJECT_NAME": '"Weft for Python"',
        "OUTPUT_DIRECTORY": f'"{directory}"',
        "HTML_OUTPUT": "html/python",
        "INPUT": f'"{ROOT / "python/weft"}"',
        "FILE_PATTERNS": "*.py",
        "EXCLUDE_PATTERNS": "*/_[a-z]*.py",
        "EXCLUDE_SYMBOLS": "*::_*",
        "STRIP_FROM_PATH": f'"{ROOT / "python"}"',
        "OPTIMIZE_OUTPUT_JAVA": "YES",
        "PYTHON_DOCSTRING": "NO",
        "EXTRACT_ALL": "YES",
        "AUTOLINK_SUPPORT": "NO",
        "SORT_MEMBER_DOCS": "NO",
        "SHOW_FILES": "NO",
        "GENERATE_LATEX": "NO",
        "HAVE_DOT": "NO",
        "QUIET": "YES",
        "WARN_AS_ERROR": "FAIL_ON_WARNINGS",
    }


def doxygen(chosen):
    text = "".join(f"{name} = {value}\n" for name, value in chosen.items())
    return subprocess.run(["doxygen", "-"], input=text, text=True, check=False).returncode


def layer_of(header):
    """include/weft/verbs/gid.hpp and include/weft/verbs.hpp belong to verbs, others to base."""
    parts = pathlib.Path(header.split("weft/", 1)[-1]).with_suffix("").parts
    return parts[0] if (ROOT / "include" / "weft" / parts[0]).is_dir() else "base"


# What the language calls in coroutines, and no program.
COROUTINES = {"await_ready", "await_suspend", "await_resume", "get_return_object",
              "initial_suspend", "final_suspend", "return_void", "unhandled_exception"}


def is_special(member, owner):
    """Destructors, copies and moves are described once for all classes, in weft/handle.hpp; so are
    defaulted comparisons, which compare all members, and deleted functions."""
    name, arguments = member.findtext("name"), member.findtext("argsstring") or ""
    if name.startswith("~") or name == "operator=" or "=delete" in arguments.replace(" ", ""):
        return True
    if name == "operator==" or name in COROUTINES:
        return True
    kind = member.find("param/type")
    first = "" if kind is None else "".join(kind.itertext())
    bare = first.replace("const", "").replace("&", "").split("<")[0].strip()
    return name == owner and bare == owner


def has_comment(entity):
    texts = [entity.find(f"{kind}description") for kind in ("brief", "detailed")]
    return any(text is not None and "".join(text.itertext()).strip() for text in texts)


def compounds(directory, kinds):
    for path in sorted((directory / "xml").glob("*.xml")):
        for compound in xml.etree.ElementTree.parse(path).iter("compounddef"):
            if compound.get("kind") in kinds:
                yield compound


def is_of_c(entity):
    place = entity.find("location")
    return place is not None and place.get("file", "").endswith(".h")


def functions(directory):
    """(header, name, whether there is a comment) of each public function in C++."""
    for compound in compounds(directory, ("class", "struct", "namespace")):
        if compound.get("prot") == "private":
            continue
        scope = compound.findtext("compoundname")
        owner = scope.split("<")[0].split("::")[-1].strip()
        for member in compound.iter("memberdef"):
            if (member.get("kind") != "function" or member.get("prot") != "public"
                    or is_special(member, owner)):
                continue
            name = scope + "::" + member.findtext("name")
            yield member.find("location").get("file"), name, has_comment(member)


def interface_in_c(directory):
    """(header, kind, name, whether there is a comment) of all that the C interface declares."""
    for compound in filter(is_of_c, compounds(directory, ("file", "struct"))):
        scope, kind = compound.findtext("compoundname"), compound.get("kind")
        inside = scope + "." if kind == "struct" else ""
        if kind == "struct":
            yield compound.find("location").get("file"), kind, scope, has_comment(compound)
        for member in filter(is_of_c, compound.iter("memberdef")):
            header, name = member.find("location").get("file"), member.findtext("name")
            kind = member.get("kind")
            kind = {"variable": "member", "define": "macro"}.get(kind, kind)
            yield header, kind, inside + name, has_comment(member)
            for value in member.iter("enumvalue"):
                yield header, "value", value.findtext("name"), has_comment(value)


def check_c(directory):
    """Prints what the C interface declares without a comment; 1 if there is anything, or if a
    function that its headers declare is not in the reference at all."""
    found = list(interface_in_c(directory))
    for header, kind, name, has in found:
        if not has:
            print(f"{header}: the {kind} {name} has no comment")
    shown = {name for _, kind, name, _ in found if kind == "function"}
    absent = comments.c_functions() - shown
    for name in sorted(absent):
        print(f"{name}() is not in the reference")
    others = len(found) - len(shown)
    print(f"C: {len(shown)} functions, and {others} types, members, values and macros")
    return 1 if absent or not all(has for *_, has in found) else 0


def check_comments(directory):
    """Prints the functions without a comment of each layer that has too many; 1 if there is one."""
    missing, total = {}, 0
    for header, name, has in functions(directory):
        total += 1
        if not has:
            missing.setdefault(layer_of(header), []).append(f"  {header}: {name}")
    count = sum(len(names) for names in missing.values())
    print(f"{total - count} of {total} public functions have a comment")
    failed = 0
    for layer in sorted(set(missing) | set(UNDOCUMENTED)):
        names, allowed = missing.get(layer, []), UNDOCUMENTED.get(layer, 0)
        if len(names) > allowed:
            print(f"{layer}: {len(names)} functions have no comment, {allowed} may have none:")
            print("\n".join(names))
            failed = 1
        elif len(names) < allowed:
            print(f"{layer}: write {len(names)} instead of {allowed} into UNDOCUMENTED, in "
                  "docs/reference/reference.py: that many are left")
    return failed


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if not shutil.which("doxygen"):
        print("skipped: doxygen is not installed")
        return 77
    directory = pathlib.Path(sys.argv[1]).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(directory / "xml", ignore_errors=True)
    if doxygen(settings(directory)) or doxygen(python_settings(directory)):
        return 1
    return max(check_comments(directory), check_c(directory))


if __name__ == "__main__":
    sys.exit(main())
