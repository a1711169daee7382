"""The provider exports what libfabric looks for, and nothing else.

usage: symbols_test.py LIBRARY
"""

import subprocess
import sys


def exported(library):
    text = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    rows = [line.split() for line in text.splitlines()]
    return {row[7] for row in rows
            if len(row) > 7 and row[4] in ("GLOBAL", "WEAK", "UNIQUE") and row[6] != "UND"}


if __name__ == "__main__":
    found = exported(sys.argv[1])
    if found != {"fi_prov_ini"}:
        sys.exit(f"exported: {', '.join(sorted(found)) or 'nothing'}")
