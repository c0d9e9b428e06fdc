"""Base images from what is on this machine, for where no image can be pulled.

Packed are this interpreter with its library, a handful of programs, nats-server, the shared
libraries that all of them load, and the packages of the lock as wheels: about 200 MB, and 100 more
where there is a Prometheus.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = (
    *("sh", "true", "mkdir", "chown", "echo", "sleep", "date", "wc", "cat", "env", "rm", "wget"),
    *("mv", "id"),  # of deploy/nats.sh
    *("sed", "bash", "touch", "strip", "prometheus"),  # the build and the sample checks
    *("openssl", "base32", "base64", "head", "tail", "tr", "mktemp"),  # a check in shell
)
LEFT_OUT = {"test", "tests", "__pycache__", "site-packages", "idlelib", "tkinter", "turtledemo"}
ROOT = Path(__file__).parents[2]


def fingerprint() -> str:
    """Changes with whatever goes into a base, so that one made before can serve again."""
    programs = [name for name in PROGRAMS if shutil.which(name)]
    parts = (
        " ".join(programs).encode(),
        (ROOT / "requirements.lock").read_bytes(),
        Path(__file__).read_bytes(),
        sys.version.encode(),
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def wheels(folder: Path) -> Path:
    """All packages of the lock, checked against their hashes, as files in folder."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--require-hashes", "--dest", str(folder), "-r", str(ROOT / "requirements.lock")),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return folder


def pack(target: Path, wheel_folder: Path) -> None:
    """Writes the root file system of the base to target, as a tar."""
    prefix = Path(sys.base_prefix)
    python = Path(os.path.realpath(sys.executable))
    programs = [Path(program) for name in PROGRAMS if (program := shutil.which(name))]
    server = Path(sysconfig.get_path("scripts")) / "nats-server"
    library = Path(sysconfig.get_path("stdlib"))
    loadable = [python, *programs, *(library / "lib-dynload").glob("*.so")]
    loadable += list(prefix.glob("lib/libpython3*.so*"))
    with tarfile.open(target, "w") as tar:
        packed = Pack(tar)
        # As on Debian: /bin and /lib are /usr's, and the loader is looked for in /lib64.
        for name in ("bin", "lib", "lib64", "sbin"):
            packed.link(name, f"usr/{name}")
        packed.folder("tmp", 0o1777)
        packed.text("etc/passwd", "root:x:0:0:root:/:/bin/sh\nadmit:x:65532:65532::/:/bin/sh\n")
        packed.text("etc/group", "root:x:0:\nadmit:x:65532:\n")
        packed.text("etc/nsswitch.conf", "hosts: files dns\n")
        for path in programs:
            packed.file(path, f"usr/bin/{path.name}")
        packed.file(server, "usr/local/bin/nats-server")
        for path in [python, *prefix.glob("lib/libpython3*.so*"), *_libraries(loadable)]:
            packed.file(path)
        for path in sorted(library.rglob("*")):
            if not LEFT_OUT & set(path.relative_to(library).parts) and path.is_file():
                packed.file(path)
        for name in ("python3", "python"):
            packed.link(f"usr/local/bin/{name}", str(python))
        for path in wheel_folder.iterdir():
            packed.file(path, f"wheels/{path.name}")


class Pack:
    """Writes a tar; every folder in it is readable for all users, without duplicate names."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._names: set[str] = set()

    def file(self, path: Path, name: str = "") -> None:
        """Packs path, under its own name unless another is given."""
        data = path.read_bytes()
        name = name or re.sub(r"^/(lib|lib64|bin)/", r"/usr/\1/", str(path)).lstrip("/")
        mode = 0o755 if os.access(path, os.X_OK) else 0o644
        self._add(name, tarfile.REGTYPE, mode, data=data)

    def text(self, name: str, text: str) -> None:
        self._add(name, tarfile.REGTYPE, 0o644, data=text.encode())

    def link(self, name: str, target: str) -> None:
        self._add(name, tarfile.SYMTYPE, 0o777, target=target)

    def folder(self, name: str, mode: int = 0o755) -> None:
        self._add(name, tarfile.DIRTYPE, mode)

    def _add(
        self, name: str, kind: bytes, mode: int, *, data: bytes = b"", target: str = ""
    ) -> None:
        if name in self._names:
            return
        above = str(Path(name).parent)
        if above != ".":
            self.folder(above)
        self._names.add(name)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.linkname = kind, mode, len(data), target
        self._tar.addfile(info, io.BytesIO(data))


def _libraries(loadable: Iterable[Path]) -> set[Path]:
    """Every shared library that these files load, and the loader."""
    output = subprocess.run(
        ["ldd", *map(str, loadable)], capture_output=True, text=True, check=False
    ).stdout
    libraries = {Path(path) for path in re.findall(r"(/\S+) \(0x", output)}
    # Loaded by name at run time, and the stubs of glibc that wheels for older systems ask for.
    stubs = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6")
    by_name = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1")
    libraries |= {
        folder / name for folder in {p.parent for p in libraries} for name in stubs + by_name
    }
    return {path for path in libraries if path.exists()}
