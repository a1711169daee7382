"""Each header of src/ and include/weft compiles alone.

A source file of the build that includes its own header first has shown it already. The others are
compiled with the flags of a source file of the same layer. What was checked before and has not
changed since, nor anything that it includes, is not compiled again.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import house
import includes

# Optimisation and instrumentation do not matter for whether a header compiles; they cost time.
_DROP = re.compile(r"-fsanitize|-fno-sanitize|-O|-g\d?$|-M|-flto|-fno-fat-lto|-Winvalid-pch")
_DROP_WITH_VALUE = {"-o", "-c", "-MF", "-MT", "-MQ"}
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]*)[">]', re.MULTILINE)


def flags_of(entry):
    """The compiler and its flags, without launcher, input and output."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    while re.search(r"(ccache|distcc|env)$", words[0]):
        words = words[1:]
    kept, skip_next = [words[0]], False
    for word in words[1:]:
        if skip_next:
            skip_next = False
        elif word in _DROP_WITH_VALUE:
            skip_next = True
        elif not _DROP.match(word) and word != entry["file"]:
            kept.append(word)
    return kept


def compiled_files(build):
    """(file, its entry in the compile commands) for each source file of the build."""
    for entry in json.loads(house.read(build / "compile_commands.json")):
        yield pathlib.Path(entry["directory"], entry["file"]), entry


def flags_by_layer(root, build):
    """The flags for each layer; under "" those for a layer without a source file."""
    flags = {}
    for path, entry in compiled_files(build):
        if root / "src" in path.parents:
            words = flags_of(entry)
            flags.setdefault(path.relative_to(root / "src").parts[0], words)
            flags.setdefault("", words)
    return flags


def name_of(root, header):
    """The header as the project's files include it."""
    return str(header.relative_to(root / ("src" if root / "src" in header.parents else "include")))


def is_first_of_its_source(root, header, compiled):
    source = header.with_suffix(".cc")
    first = source in compiled and _INCLUDE.search(house.read(source))
    return bool(first) and first[1] == name_of(root, header)


def digest(paths):
    sha = hashlib.sha256()
    for path in paths:
        try:
            sha.update(path.encode() + b"\0" + pathlib.Path(path).read_bytes())
        except OSError:
            return None
    return sha.hexdigest()


def compile_alone(root, build, header, flags):
    """What the compiler says (empty if fine), and the project's files that were read."""
    name = name_of(root, header)
    with tempfile.TemporaryDirectory() as scratch:
        depends = pathlib.Path(scratch, "depends")
        command = flags + [f"-I{root}/src", f"-I{root}/include", "-fsyntax-only", "-x", "c++", "-",
                           "-MMD", "-MT", "x", "-MF", str(depends)]
        done = subprocess.run(command, input=f'#include "{name}"\n', text=True, cwd=build,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            return done.stdout or f"exit status {done.returncode}", []
        words = depends.read_text().replace("\\\n", " ").split()[1:]
        return "", [word for word in words if word != "-"]


def load(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def main():
    parser = house.arguments(__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()
    report = house.Report(root)
    by_layer = flags_by_layer(root, build)
    if not by_layer:
        house.skip("no source file under src/ is compiled, so there are no flags to compile with")

    memory_file = build / "header_check.json"
    before, after, work = load(memory_file), {}, {}
    compiled = {path for path, _ in compiled_files(build)}
    headers = [path for path in house.sources(root) if path.suffix in (".h", ".hpp") and
               not is_first_of_its_source(root, path, compiled)]
    for header in headers:
        flags = by_layer.get(includes.layer_of(root, header)[0] or "", by_layer[""])
        known = before.get(str(header))
        if known and known["flags"] == flags and known["digest"] == digest(known["files"]):
            after[str(header)] = known
        else:
            work[header] = flags

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {header: pool.submit(compile_alone, root, build, header, flags)
                for header, flags in work.items()}
        for header, job in jobs.items():
            said, read = job.result()
            if said:
                report.fail(header, 1, "does not compile alone:\n" + said)
            else:
                after[str(header)] = {"flags": work[header], "files": read, "digest": digest(read)}
    memory_file.write_text(json.dumps(after))
    print(f"{len(work)} compiled, {len(headers) - len(work)} unchanged since they were")
    return report.finish(len(headers))


if __name__ == "__main__":
    sys.exit(main())
