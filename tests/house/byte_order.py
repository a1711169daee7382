"""Byte order is handled in wire/ and in files named *_wire, so that each format has one place."""

import re
import sys

import house

# Loads and stores of integers in bytes, and the cursors that are built of them.
CODEC = re.compile(r"\b(?:load|store)_(?:be|le)\b|\bbyteswap\b|\b__builtin_bswap\d+|\bbswap_\d+"
                   r"|\bstd::endian\b|\bByte(?:Reader|Writer)\b")
CODEC_HOME = {"src/base/bytes.h", "src/base/byte_reader.h", "src/base/byte_writer.h"}
# Files that look at foreign bytes or print addresses, and have no format of their own.
CODEC_EXCEPTIONS = {
    "src/capture/host_address.cc": "prints the 16-bit words of an address",
    "src/capture/tcp/byte_stream.cc": "recognises compressed files by their magic number",
}

# Single values in network order, which is how structures of C libraries have them: ports and
# addresses of sockaddr, imm_data, GUIDs, P_Keys. These rooms fill in and read such structures.
HOST = re.compile(r"\b(?:hton|ntoh)(?:s|l|ll)\b|\b(?:htobe|htole)\d+\b|\b(?:be|le)\d+toh\b")
HOST_ROOMS = ("src/cm/", "src/device/", "src/dropin/", "src/fabric/", "src/interpose/",
              "src/simulation/", "src/verbs/", "include/weft/verbs/")


def is_codec(name):
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return (name.startswith("src/wire/") or name in CODEC_HOME or name in CODEC_EXCEPTIONS
            or stem.endswith("_wire"))


def check(report, path):
    name = path.relative_to(report.root).as_posix()
    for number, line in enumerate(house.code_only(house.read(path)).split("\n"), 1):
        found = None if is_codec(name) else CODEC.search(line)
        if found:
            report.fail(path, number, f"{found.group(0)}: byte order belongs to wire/ and to files "
                                      "named *_wire")
        found = None if name.startswith(HOST_ROOMS) else HOST.search(line)
        if found:
            report.fail(path, number, f"{found.group(0)}: only rooms with structures of C "
                                      "libraries convert single values: HOST_ROOMS of "
                                      "tests/house/byte_order.py")


def main():
    root = house.arguments(__doc__).parse_args().root.resolve()
    report = house.Report(root)
    paths = house.sources(root)
    for path in paths:
        check(report, path)
    return report.finish(len(paths))


if __name__ == "__main__":
    sys.exit(main())
