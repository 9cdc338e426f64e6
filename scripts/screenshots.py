"""Make the screenshots of the documents: the week that `scripts/demo --html` draws, and a GPU memory page.

Started by `scripts/generate --pictures`. Needs Chromium; nothing leaves this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 300_000
FOLDER = ROOT / "docs" / "images"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)


def draw_week(page: Path) -> None:
    """Write the page of the demo's week."""
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--html", str(page)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def draw_memory(page: Path) -> None:
    """Write the page of a recorded session."""
    sink = ROOT / "tests" / "data" / "stormlog" / "gpu-sink"
    command = [sys.executable, "-m", "fleetgauge.gpu_memory", "report", str(sink), "-o", str(page)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def screenshot(chromium: str, page: Path, image: Path, height: int) -> None:
    """Write the top of a page as an image; raise SystemExit where it is too large for a README."""
    profile = page.with_suffix(".profile")
    options = [f"--user-data-dir={profile}", f"--screenshot={image}", f"--window-size=1280,{height}"]
    subprocess.run([chromium, *FLAGS, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
    size = image.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{image.name} has {size:,} bytes, above the limit of {MAX_BYTES:,}")
    print(f"{image.name}: {size:,} bytes")


def main() -> int:
    """Make both; return 1 where there is no browser."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("there is no Chromium: install the package chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, draw, height in (("fleet", draw_week, 1200), ("gpu-memory", draw_memory, 900)):
            page = Path(folder, f"{name}.html")
            draw(page)
            screenshot(chromium, page, FOLDER / f"{name}.png", height)
    return 0


if __name__ == "__main__":
    sys.exit(main())
