"""A build backend of PEP 517 for the package beside it: a wheel is an archive of its files."""

import base64
import hashlib
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'^VERSION = "(.*)"$', (HERE / "weft/_version.py").read_text(), re.M).group(1)
INFO = f"weft-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: weft
Version: {VERSION}
Summary: RDMA on any Linux machine: connections, messages, streams, and captures
License: MIT
Requires-Python: >=3.9
Provides-Extra: capture
Requires-Dist: pandas; extra == "capture"
Provides-Extra: plots
Requires-Dist: matplotlib; extra == "plots"
"""
WHEEL = """Wheel-Version: 1.0
Generator: weft_build
Root-Is-Purelib: true
Tag: py3-none-any
"""


def package_files():
    """The files of the package, with their paths in it."""
    return [(path.relative_to(HERE).as_posix(), path.read_bytes())
            for path in sorted((HERE / "weft").iterdir())
            if path.suffix == ".py" or path.name == "py.typed"]


def write(archive, name, content):
    """Adds a file with a date of its own, so that each build of a version is the same."""
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o644 << 16
    archive.writestr(member, content)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: writes the wheel and returns its name."""
    files = package_files() + [(f"{INFO}/METADATA", METADATA.encode()),
                               (f"{INFO}/WHEEL", WHEEL.encode())]
    record = ""
    name = f"weft-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files:
            write(archive, path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{path},sha256={digest.decode()},{len(content)}\n"
        write(archive, f"{INFO}/RECORD", record + f"{INFO}/RECORD,,\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: writes the source archive and returns its name."""
    name = f"weft-{VERSION}"
    with tarfile.open(pathlib.Path(sdist_directory, f"{name}.tar.gz"), "w:gz") as archive:
        for path in ("pyproject.toml", "weft_build.py", "weft"):
            archive.add(HERE / path, f"{name}/{path}",
                        filter=lambda one: None if "__pycache__" in one.name else one)
    return f"{name}.tar.gz"
