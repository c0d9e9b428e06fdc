"""Removes from an installed virtual environment what the services of an image do not need:
``python3 strip.py FOLDER``. It is about half of the folder.

- pip and setuptools: nothing is installed in an image.
- nats-server: it has an image of its own.
- botocore's descriptions of services besides EC2 and those that give credentials.
- symbols for debuggers in shared libraries, if the program ``strip`` is found.
"""

import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = ("pip", "pip-*.dist-info", "setuptools", "setuptools-*.dist-info", "pkg_resources")
TOOLS += ("_distutils_hack", "distutils-precedence.pth")
KEPT = {"ec2", "sts", "sso", "sso-oidc", "signin"}
"""Services of AWS that provider-aws calls: the last four give credentials."""


def strip(folder: Path) -> None:
    """Removes files under ``folder``, a virtual environment."""
    (packages,) = folder.glob("lib/python3*/site-packages")
    removed = [path for pattern in TOOLS for path in packages.glob(pattern)]
    removed += [*folder.glob("bin/pip*"), folder / "bin" / "nats-server"]
    for service in packages.glob("botocore/data/*/"):
        if service.is_dir() and service.name not in KEPT:
            removed.append(service)
    for path in removed:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if shutil.which("strip"):
        libraries = [str(path) for path in packages.rglob("*.so")]
        subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


if __name__ == "__main__":
    strip(Path(sys.argv[1]))
