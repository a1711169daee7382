"""Makes the guest of the kernel tests: Debian's kernel, and an initial RAM disk with the rest.

usage: image.py [FOLDER]     writes FOLDER/vmlinuz, FOLDER/initrd and FOLDER/bare.tar; the default
                             is build/kernel

The packages come from where apt is configured to take them. They are unpacked and not installed, so
that this machine's own kernel and boot files stay as they are. Debian's kernel does not have `siw`,
so it is built from Debian's source of the same kernel, twice: without a change, and as the module
`siw_parameters`, whose constants are module parameters. What is there already is used again:
FOLDER/stamp names the packages and the scripts that the image was made of.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_GUEST_PACKAGES = ("rdmacm-utils", "perftest", "ibverbs-utils", "ibverbs-providers", "iproute2",
                   "kmod", "socat", "bash", "coreutils", "grep", "mount", "procps", "util-linux",
                   "tar",
                   # What the suites of the C++ layers are linked with.
                   "libstdc++6", "libfmt9", "libisal2")
# A bare Debian, for the test of Weft's package: the programs, and what the package depends on.
_BARE_PACKAGES = ("rdmacm-utils", "perftest", "ibverbs-utils", "libfmt9", "libisal2", "libpcap0.8",
                  "libzstd1", "liblzma5", "libbz2-1.0", "liblz4-1", "libfabric1", "libstdc++6")
_MODULES = ("virtio_pci", "virtio_net", "virtio_rng", "crc32c_generic", "crc32_generic",
            "ib_uverbs", "rdma_ucm", "siw", "siw_parameters", "rdma_rxe", "sch_netem", "ifb",
            "sch_ingress", "cls_matchall", "act_mirred", "9p", "9pnet_virtio")
_SIW = "drivers/infiniband/sw/siw"


def output_of(*argv, **options):
    return subprocess.run(argv, check=True, capture_output=True, text=True, **options).stdout


def run(*argv, **options):
    subprocess.run(list(map(str, argv)), check=True, stdin=subprocess.DEVNULL, **options)


def kernel_release():
    """The release that Debian's meta package stands for, as 6.1.0-56-amd64."""
    for line in output_of("apt-cache", "depends", "linux-image-amd64").splitlines():
        name = line.partition("Depends: linux-image-")[2].split(" ")[0]
        if name:
            return name
    raise SystemExit("image.py: apt knows no package linux-image-amd64: run apt-get update")


def archives():
    """Debian's archives as apt is configured with, as lines of a sources.list."""
    lines = output_of("apt-get", "indextargets", "--format",
                      "$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
                      "Created-By: Packages").splitlines()
    return sorted({line.partition("|")[2] for line in lines if line.startswith("Debian|")})


def suite():
    for line in pathlib.Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return "stable"


def stamp_of(release):
    """What the image is made of: a change of it makes the image again."""
    kernel = output_of("apt-cache", "show", "--no-all-versions", f"linux-image-{release}")
    digest = hashlib.sha256(kernel.encode())
    for path in (_HERE / "image.py", *sorted((_HERE / "guest").iterdir())):
        digest.update(path.read_bytes())
    return f"{release} {digest.hexdigest()}\n"


def unpack_kernel(work, release):
    """Debian's kernel with its modules, and the source of siw."""
    packages = work / "packages"
    packages.mkdir()
    run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", f"linux-image-{release}",
        f"linux-source-{'.'.join(release.split('.')[:2])}", cwd=packages)
    for package in packages.glob("*.deb"):
        run("dpkg-deb", "-x", package, work / "kernel")
    source = next((work / "kernel/usr/src").glob("linux-source-*.tar.xz"))
    run("tar", "-C", work, "-xf", source, "--wildcards", f"*/{_SIW}/*")
    shutil.move(next(work.glob(f"linux-source-*/{_SIW}")), work / "siw")


def with_parameters(work):
    """A copy of siw's source as the module siw_parameters: nothing else differs."""
    copy = work / "siw_parameters"
    shutil.copytree(work / "siw", copy)
    main, header, makefile = copy / "siw_main.c", copy / "siw.h", copy / "Makefile"
    text = re.sub(r"^const bool (\w+)(.*;)$", r"bool \1\2\nmodule_param(\1, bool, 0444);",
                  main.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^(u_char mpa_version = .*;)$", r"\1\nmodule_param(mpa_version, byte, 0444);",
                  text, flags=re.MULTILINE)
    main.write_text(text)
    header.write_text(header.read_text().replace("extern const bool", "extern bool"))
    makefile.write_text(re.sub(r"\bsiw(\.o|-y)", r"siw_parameters\1", makefile.read_text()))


def build_siw(work, release):
    headers = pathlib.Path(f"/usr/src/linux-headers-{release}")
    if not headers.is_dir():
        raise SystemExit(f"image.py: siw needs the kernel's headers: apt-get install "
                         f"linux-headers-{release}")
    with_parameters(work)
    modules = work / "kernel/lib/modules" / release
    (modules / "extra").mkdir()
    for name in ("siw", "siw_parameters"):
        with open(work / f"{name}.log", "w", encoding="ascii") as log:
            run("make", "-C", headers, f"M={work / name}", "CONFIG_RDMA_SIW=m", "modules",
                stdout=log, stderr=log)
        shutil.copy(work / name / f"{name}.ko", modules / "extra")
    run("depmod", "-b", work / "kernel", release)


def needed_modules(modules):
    """The files of _MODULES and of everything that they depend on."""
    depends = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        depends[path] = others.split()
    names = {pathlib.Path(path).name[:-3].replace("-", "_"): path for path in depends}
    for name in (modules / "modules.builtin").read_text().split():
        names.setdefault(pathlib.Path(name).name[:-3].replace("-", "_"), "")
    wanted = [names[name] for name in _MODULES if names[name]]
    return sorted({path for module in wanted for path in (module, *depends[module])})


def make_root(work, release):
    """The guest's files."""
    root = work / "root"
    run("mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(_GUEST_PACKAGES)}",
        suite(), root, *archives())
    for folder in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info",
                   "usr/share/perl", "usr/lib/x86_64-linux-gnu/gconv", "var/lib/apt", "var/cache",
                   "usr/lib/x86_64-linux-gnu/perl-base"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for source in sorted((_HERE / "guest").iterdir()):
        shutil.copy(source, root / source.name)
        (root / source.name).chmod(0o755)
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to("bash")
    modules = work / "kernel/lib/modules" / release
    target = root / "lib/modules" / release
    target.mkdir(parents=True)
    for path in needed_modules(modules):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(modules / path, target / path)
    for name in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
        shutil.copy(modules / name, target)
    run("depmod", "-b", root, release)
    return root


def make_bare(target):
    """A Debian as its installer leaves it, with dpkg's records of the packages."""
    run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_BARE_PACKAGES)}",
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        suite(), target, *archives())


def pack(root, target):
    """As a cpio archive without compression: an emulated processor unpacks slowly."""
    with open(target, "wb") as out:
        names = subprocess.run(["find", ".", "-print0"], cwd=root, check=True,
                               capture_output=True).stdout
        subprocess.run(["cpio", "--quiet", "-0", "-o", "-H", "newc", "-R", "0:0"], cwd=root,
                       input=names, stdout=out, check=True)


def make(folder):
    release = kernel_release()
    stamp = stamp_of(release)
    if (folder / "stamp").exists() and (folder / "stamp").read_text() == stamp:
        return
    print(f"making the guest with Linux {release} (a minute or two)", flush=True)
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    unpack_kernel(work, release)
    build_siw(work, release)
    pack(make_root(work, release), folder / "initrd")
    make_bare(folder / "bare.tar")
    shutil.copy(work / "kernel/boot" / f"vmlinuz-{release}", folder / "vmlinuz")
    shutil.rmtree(work)
    (folder / "stamp").write_text(stamp)


if __name__ == "__main__":
    os.umask(0o022)
    make(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else _ROOT / "build/kernel")
