"""Remove from the image's packages what the service can never import. Only the Dockerfile runs this.

The Datadog client has a module per model, of which we import few; botocore describes every service of AWS;
pygments, which rich needs, has a lexer per language; a package may contain its tests. The modules of the
Datadog client that stay are found by following every import statement, also those inside functions and those
for type checkers: too many may stay, but none is missing.
"""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CLIENT = "datadog_api_client"
# Ours, and those that botocore itself calls to obtain credentials.
SERVICES = {"s3", "secretsmanager", "signin", "sso", "sso-oidc", "sts"}
LEXERS = {"__init__.py", "_mapping.py"}  # what importing rich loads; no code is highlighted


def imported(source: Path) -> Iterator[str]:
    """Yield the absolute names a file imports; for `from a import b` both `a` and `a.b` may be modules."""
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and CLIENT in source.parts:
            raise ValueError(f"{source}: a relative import, which is not followed")


def with_parents(name: str) -> Iterator[str]:
    """Yield the packages that contain a module, outermost first, and the module."""
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def reachable(sources: Iterable[Path], modules: dict[str, Path]) -> set[str]:
    """Return the modules of a package that can be imported, starting from these files."""
    found: set[str] = set()
    queue = list(sources)
    while queue:
        for name in imported(queue.pop()):
            for module in with_parents(name):
                if module in modules and module not in found:
                    found.add(module)
                    queue.append(modules[module])
    return found


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name of a file below the folder of installed packages."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def trim(packages: Path, service: Path) -> None:
    """Remove from `packages` what `service` cannot import; raise ValueError where that would be unsafe."""
    modules = {module_name(path, packages): path for path in (packages / CLIENT).rglob("*.py")}
    needed = reachable(service.rglob("*.py"), modules)
    if not needed:
        raise ValueError(f"nothing under {service} imports {CLIENT}")
    for module in modules.keys() - needed:
        modules[module].unlink()
    descriptions = packages / "botocore" / "data"
    services = {path.name: path for path in descriptions.iterdir() if path.is_dir()}
    if missing := SERVICES - services.keys():
        raise ValueError(f"botocore does not know {', '.join(sorted(missing))}")
    for name in services.keys() - SERVICES:
        shutil.rmtree(services[name])
    for lexer in (packages / "pygments" / "lexers").glob("*.py"):
        if lexer.name not in LEXERS:
            lexer.unlink()
    for tests in [path for path in packages.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests)
    print(f"{CLIENT}: {len(needed)} of {len(modules)} modules stay")
    print(f"botocore: {len(SERVICES)} of {len(services)} services stay")


if __name__ == "__main__":
    trim(Path(sys.argv[1]), Path(sys.argv[2]))
