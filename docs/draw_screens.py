"""Train the suite quickstart and photograph its report page and the dashboard: `python docs/draw_screens.py [FOLDER]`.

Needs Chromium. An interrupted script resumes its trials in FOLDER; without one, a temporary folder is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT, COLORS = 1000, 965, 200
TRIALS, PORT = 28, 8731


def draw(folder: Path) -> None:
    """Write the pictures of docs/tutorial.md, of trials in a folder."""
    own = {name: value for name, value in os.environ.items() if name not in ("DROPBENCH_RUNS", "DROPBENCH_DB")}
    environment = {**own, "PYTHONPATH": str(Path(__file__).parents[1])}

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "dropbench", *words], cwd=folder, env=environment)

    def finish(process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            raise SystemExit(f"failed: {process.args!r}")

    run = start("run", "quickstart")
    while not (folder / "dropbench.db").exists():  # the dashboard needs it
        time.sleep(0.5)
    with sync_playwright() as playwright, started(start("dashboard", "--port", str(PORT))):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        while run.poll() is None and 3 * len(finished(folder)) <= 2 * TRIALS:
            time.sleep(0.5)
        time.sleep(5)  # the two trials that started last are in their first third
        photograph(opened(browser, f"http://127.0.0.1:{PORT}/"), "dashboard")
        finish(run)
        trial = finished(folder)[-1]
        photograph(opened(browser, f"http://127.0.0.1:{PORT}/trial/{trial}"), "trial", height=720)
        finish(start("analyze", "quickstart", "attention-map"))
        finish(start("report", "quickstart", "--format", "html", "-o", "report.html"))
        page = opened(browser, (folder / "report.html").resolve().as_uri())
        photograph(page, "report", height=1420)
        photograph(page, "curves", "#curves", height=1390)
        photograph(page, "attention-maps", "#attention-map", height=860)
        browser.close()


def finished(folder: Path) -> list[str]:
    """Return the ids of the trials with a result, in the order of their ends."""
    return [
        path.parent.name for path in sorted(folder.glob("runs/*/result.json"), key=lambda path: path.stat().st_mtime)
    ]


@contextmanager
def started(server: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop a server at the end."""
    try:
        time.sleep(5)
        yield
    finally:
        server.terminate()
        server.wait()


def opened(browser: Browser, address: str) -> Page:
    """Open a page and wait until its charts are drawn."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(address)
    for chart in page.locator("figure.chart").all():
        chart.locator("svg").wait_for()
    return page


def photograph(page: Page, name: str, top: str = "html", *, height: int = HEIGHT) -> None:
    """Write a part of a page that begins at an element."""
    box = page.locator(top).bounding_box()
    assert box is not None
    path = IMAGES / f"{name}.png"
    clip = {"x": 0.0, "y": max(box["y"] - 10, 0.0), "width": float(WIDTH), "height": float(height)}
    page.screenshot(path=path, full_page=True, clip=clip)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            draw(Path(temporary))
