"""The analysis of captures: operations, RPCs, connections and findings of `weft dissect --json`.

    import pandas, weft.capture
    table = pandas.DataFrame(weft.capture.rpcs("nfs.pcap.zst"))
    table.groupby("name").latency_ns.describe()

Each function is an iterator of records while the capture is read, in bounded memory. A record is a
dictionary of plain values: nested objects are flattened, so that `{"call": {"ns": 1}}` is
`{"call_ns": 1}`. docs/dissect.md describes the fields.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

from .errors import Error

Record = Dict[str, Any]
Path = Union[str, "os.PathLike[str]"]


def _program(program: Optional[Path]) -> str:
    found = os.fspath(program) if program else shutil.which("weft")
    if not found:
        raise Error(errno.ENOENT, "the program weft is not in PATH: install the package weft, or "
                    "pass its path as `program`")
    return found


def _flat(record: Record, prefix: str = "") -> Iterator[Any]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}_")
        else:
            yield prefix + name, value


def records(files: Union[Path, Iterable[Path]], *options: str,
            program: Optional[Path] = None) -> Iterator[Record]:
    """All records that `weft dissect --json` prints with these options; `type` names their kind.
    Raises Error after the last record if a file cannot be read, or not to its end."""
    names = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    paths = [os.fspath(name) for name in names]
    paths = ["./" + path if path.startswith("-") else path for path in paths]
    command = [_program(program), "dissect", "--json", *options, *paths]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=errors, encoding="utf-8") as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    yield dict(_flat(json.loads(line)))
            except GeneratorExit:
                child.terminate()
                raise
        if child.returncode not in (0, 1):  # 1: there are findings
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace").strip()
            raise Error(errno.EIO, text or f"weft dissect has ended with {child.returncode}")


def _of_type(kind: str, files: Any, option: str, where: Optional[str],
             program: Optional[Path]) -> Iterator[Record]:
    options: List[str] = [option] + (["--filter", where] if where else [])
    return (one for one in records(files, *options, program=program) if one["type"] == kind)


def operations(files: Union[Path, Iterable[Path]], where: Optional[str] = None,
               program: Optional[Path] = None) -> Iterator[Record]:
    """Each send, write, read and atomic. `where` is a filter as of `weft dissect --filter`."""
    return _of_type("operation", files, "--operations", where, program)


def rpcs(files: Union[Path, Iterable[Path]], where: Optional[str] = None,
         program: Optional[Path] = None) -> Iterator[Record]:
    """Each RPC: a call with its reply."""
    return _of_type("rpc", files, "--rpc", where, program)


def connections(files: Union[Path, Iterable[Path]], where: Optional[str] = None,
                program: Optional[Path] = None) -> Iterator[Record]:
    """Each connection, with its counts."""
    return _of_type("connection", files, "--connections", where, program)


def findings(files: Union[Path, Iterable[Path]], where: Optional[str] = None,
             program: Optional[Path] = None) -> Iterator[Record]:
    """What is wrong with the traffic, or costs time."""
    return _of_type("finding", files, "--findings", where, program)
