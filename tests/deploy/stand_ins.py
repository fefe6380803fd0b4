"""Base images made of Debian packages, for machines that reach Debian and no image registry.

They get the very names that Dockerfile and docker-compose.yml use, so both are tested unchanged.
Programs are Debian's versions; docs/deploy.md says which those were.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LABEL = "prefold.stand-in"
MIRROR = "http://deb.debian.org/debian"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP = Path("/etc/pip.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    name: str
    suite: str
    packages: tuple[str, ...]
    recipe: str
    """What follows FROM in its Dockerfile."""


STAND_INS = (
    StandIn(
        name="python:3.12-slim",
        suite="trixie",
        packages=("ca-certificates", "python3", "python3-venv", "python-is-python3"),
        recipe="COPY host/ /",  # how this machine reaches PyPI
    ),
    StandIn(
        name="redis:7-alpine",
        suite="bookworm",
        packages=("redis-server",),
        recipe="WORKDIR /data\nUSER 999",
    ),
    StandIn(
        name="prom/prometheus:v3.5.0",
        suite="trixie",
        packages=("prometheus",),
        recipe=(
            "RUN install -d -o nobody -g nogroup /prometheus /etc/prometheus\n"
            "USER nobody\n"
            'ENTRYPOINT ["prometheus"]\n'
            'CMD ["--config.file=/etc/prometheus/prometheus.yml", '
            '"--storage.tsdb.path=/prometheus"]'
        ),
    ),
)


def make_all(folder: Path) -> None:
    """Those that are not there yet. Raises RuntimeError, CalledProcessError."""
    if shutil.which("mmdebstrap") is None:
        raise RuntimeError("stand-ins are made with mmdebstrap: apt-get install mmdebstrap")
    _host_files(folder / "host")
    for one in STAND_INS:
        if _label(one.name) is None:
            print(f"{one.name}: of {', '.join(one.packages)} from Debian {one.suite}", flush=True)
            _make(one, folder)


def remove_all() -> None:
    """Nobody must take them for the real ones later."""
    for one in STAND_INS:
        if _label(one.name):
            subprocess.run(["docker", "rmi", one.name], check=False, capture_output=True)


def _make(one: StandIn, folder: Path) -> None:
    root = folder / "root.tar"
    # No cache of packages in layers, as in the official images.
    options = ['--aptopt=Dir::Cache::pkgcache ""', '--aptopt=Dir::Cache::srcpkgcache ""']
    options += ["--variant=minbase", f"--include={','.join(one.packages)}"]
    subprocess.run(["mmdebstrap", "--quiet", *options, one.suite, str(root), MIRROR], check=True)
    (folder / "Dockerfile").write_text(f"FROM scratch\nADD root.tar /\n{one.recipe}\n")
    subprocess.run(
        ["docker", "build", "--quiet", f"--label={LABEL}=yes", "--tag", one.name, str(folder)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    root.unlink()


def _host_files(folder: Path) -> None:
    """Certificates and pip's settings: a machine behind a proxy has its own."""
    for file in (CERTIFICATES, PIP):
        if file.exists():
            copy = folder / file.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _label(name: str) -> str | None:
    """None: no such image. "": one that is not ours, which stays as it is."""
    shown = subprocess.run(
        ["docker", "image", "inspect", name, "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}'],
        check=False,
        capture_output=True,
        text=True,
    )
    return shown.stdout.strip() if shown.returncode == 0 else None
