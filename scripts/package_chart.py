"""Lint the chart and pack it: scripts/package_chart.py [--home URL] [--image REPOSITORY@sha256:...] DIRECTORY

A release knows what the repository cannot: where it is hosted, and which image was built for it. Both are
written into a copy, so that the packed chart installs that image by default.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "fleetgauge"
HOME = re.compile(r"https://[\w.-]+(/[\w.-]+)*")
IMAGE = re.compile(r"([a-z0-9][a-z0-9.:/_-]*)@(sha256:[0-9a-f]{64})")


def replace_line(path: Path, old: str, new: str) -> None:
    """Replace the only line of a file that equals `old`; none or several of them is an error."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines.count(old) != 1:
        raise SystemExit(f"{path.name}: expected one line {old!r}")
    path.write_text("\n".join(new if line == old else line for line in lines) + "\n", encoding="utf-8")


def fill_in(chart: Path, home: str | None, image: str | None) -> None:
    """Write the home and the image into a copy of the chart."""
    if home:
        if not HOME.fullmatch(home):
            raise SystemExit(f"--home {home}: not the address of a repository, as https://host/owner/name")
        with (chart / "Chart.yaml").open("a", encoding="utf-8") as file:
            file.write(f"home: {home}\nsources:\n  - {home}\n")
    if image:
        match = IMAGE.fullmatch(image)
        if not match:
            raise SystemExit(f"--image {image}: not a repository with a digest, as repository@sha256:...")
        replace_line(chart / "values.yaml", '  repository: ""', f"  repository: {match[1]}")
        replace_line(chart / "values.yaml", '  digest: ""', f"  digest: {match[2]}")


def package(folder: Path, home: str | None = None, image: str | None = None) -> Path:
    """Lint the chart, pack it into a folder and return the archive."""
    helm = shutil.which("helm", path=str(ROOT / ".venv" / "bin")) or shutil.which("helm")
    if helm is None:
        raise SystemExit("helm is not installed; locks/dev.txt has it for Linux on x86_64")
    with tempfile.TemporaryDirectory() as temporary:
        copy = shutil.copytree(CHART, Path(temporary, CHART.name))
        fill_in(copy, home, image)
        for values in sorted((copy / "ci").glob("*-values.yaml")):
            subprocess.run([helm, "lint", "--strict", "--quiet", copy, "--values", values], check=True)
        packed = [helm, "package", str(copy), "--destination", str(folder)]
        printed = subprocess.run(packed, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Path(printed.strip().rpartition(": ")[2])


def main(arguments: list[str]) -> int:
    """Return 0 where the chart was linted and packed."""
    parser = argparse.ArgumentParser(description="Lint the chart and pack it.")
    parser.add_argument("folder", type=Path, metavar="DIRECTORY", help="where the archive goes")
    parser.add_argument("--home", metavar="URL", help="where the repository is hosted")
    parser.add_argument("--image", metavar="REPOSITORY@DIGEST", help="the image that it installs")
    options = parser.parse_args(arguments)
    try:
        print(package(options.folder, options.home, options.image))
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
