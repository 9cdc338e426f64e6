"""Take out of the image's packages what the service can never reach: run by the Dockerfile, nowhere else.

The Datadog client has a module per model, of which few can be imported from here; botocore describes every
service of AWS; pygments, which rich needs, has a lexer per language; a package may bring its tests. What is
kept of the first is found by following import statements, also those inside functions and those only for type
checkers, so that a module may be kept in vain but never missed.
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
    """The absolute names a file imports; of `from a import b` both `a` and `a.b`: either may be a module."""
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and CLIENT in source.parts:
            raise ValueError(f"{source}: a relative import, which is not followed")


def with_parents(name: str) -> Iterator[str]:
    """A module and the packages around it, which are imported first."""
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def reachable(sources: Iterable[Path], modules: dict[str, Path]) -> set[str]:
    """Which modules of a package can be imported, starting from these files."""
    found: set[str] = set()
    waiting = list(sources)
    while waiting:
        for name in imported(waiting.pop()):
            for module in with_parents(name):
                if module in modules and module not in found:
                    found.add(module)
                    waiting.append(modules[module])
    return found


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a file under the directory that packages are installed in."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def trim(packages: Path, service: Path) -> None:
    """Remove what `service` cannot reach from `packages`; whatever would make that unsafe is an error."""
    modules = {module_name(path, packages): path for path in (packages / CLIENT).rglob("*.py")}
    kept = reachable(service.rglob("*.py"), modules)
    if not kept:
        raise ValueError(f"nothing under {service} imports {CLIENT}")
    for module in modules.keys() - kept:
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
    print(f"{CLIENT}: kept {len(kept)} of {len(modules)} modules")
    print(f"botocore: kept {len(SERVICES)} of {len(services)} services")


if __name__ == "__main__":
    trim(Path(sys.argv[1]), Path(sys.argv[2]))
