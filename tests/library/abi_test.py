"""The C interface is that of the stored dump: no function, parameter or structure has changed.

abi_test.py LIBRARY... [--store] compares, or writes the dump anew. The C++ interface promises less
(docs/versions.md), and its dump would be a hundred times as large.
"""

import argparse
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
STORED = HERE / "c_interface.abi"
ADVICE = """
The C interface is not that of the last release. If the change was not intended, take it back.
Otherwise write the dump anew, and commit it together with the change:

    python3 -B tests/library/abi_test.py build/dev/lib/libweft.so --store

Functions may be added, and members at the end of structures that begin with `size`, with the next
version. After any other change, programs that were compiled before do not run any more: raise the
version of the interface as docs/versions.md says.
"""


def run(*command):
    return subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, check=False)


def functions():
    """The declarations of the headers, without their semicolons."""
    text = "".join(path.read_text(encoding="utf-8")
                   for path in sorted((ROOT / "include/weft/c").glob("*.h")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.findall(r"^WEFT_C_API\s+([^;]+?)\s*;", text, flags=re.M)


def dump(folder):
    """What the headers declare, as abidw prints it. A library of functions without content has the
    same interface as libweft.so, and none of its C++ types."""
    source, library = folder / "interface.c", folder / "libweft-interface.so"
    bodies = "".join(f"{one} {{ __builtin_trap(); }}\n" for one in functions())
    source.write_text(f"#include <weft.h>\n{bodies}", encoding="utf-8")
    done = run("cc", "-g", "-O0", "-w", "-shared", "-fPIC",
               f"-ffile-prefix-map={folder}=.", "-I", ROOT / "include", source,
               "-o", library, "-Wl,-soname,libweft.so")
    if done.returncode:
        sys.exit(done.stdout)
    file = folder / "now.abi"
    done = run("abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path",
               "--no-elf-needed", "--out-file", file, library)
    if done.returncode:
        sys.exit(done.stdout)
    return file


def structures(dump_file):
    """{name: (size, {member: offset})} of the structures of a dump, in bits."""
    found = {}
    for one in xml.etree.ElementTree.parse(dump_file).iter("class-decl"):
        if one.get("size-in-bits") is None:
            continue
        members = {member.find("var-decl").get("name"): int(member.get("layout-offset-in-bits"))
                   for member in one.findall("data-member")}
        found[one.get("name")] = int(one.get("size-in-bits")), members
    return found


def in_padding(stored, now):
    """New members of structures with `size` that lie where the stored structure has padding. A
    program that was compiled with the stored structure says that it has these bytes, and has no
    value in them, so that the library would read what the program never wrote."""
    return sorted(f"{name}.{member}" for name, (size, members) in stored.items()
                  if "size" in members
                  for member, offset in now.get(name, (0, {}))[1].items()
                  if member not in members and offset < size)


def check_padding(stored, now):
    example = {"options": (128, {"size": 0, "first": 64})}
    behind = {"options": (192, {"size": 0, "first": 64, "second": 128})}
    inside = {"options": (128, {"size": 0, "first": 64, "second": 96})}
    assert not in_padding(example, behind) and in_padding(example, inside) == ["options.second"]
    found = in_padding(structures(stored), structures(now))
    if found:
        sys.exit(f"new members in the padding of older structures: {', '.join(found)}. Put a "
                 "member for the padding in front of them, or give them a larger type")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    missing = [name for name in ("abidw", "abidiff") if not shutil.which(name)]
    if missing or platform.machine() != "x86_64":
        print("skipped: needs the package abigail-tools, and the processor x86-64")
        sys.exit(77)
    names = [re.search(r"(weft_\w+)\(", one).group(1) for one in functions()]
    exported = run("nm", "--dynamic", "--defined-only", options.library).stdout
    absent = set(names) - set(re.findall(r" T (weft_\w+)", exported))
    if absent:
        sys.exit(f"declared by include/weft/c and not exported: {', '.join(sorted(absent))}")
    with tempfile.TemporaryDirectory() as folder:
        now = dump(pathlib.Path(folder))
        check_padding(STORED, now)
        if options.store:
            shutil.copy(now, STORED)
            print(f"written: {STORED}")
            return
        done = run("abidiff", STORED, now)
        if done.returncode:
            sys.exit(done.stdout + ADVICE)
    print(f"{len(names)} functions, as stored")


if __name__ == "__main__":
    main()
