"""The picture of the demo page in README:
``python -m benchmarks.demo_picture http://127.0.0.1:8000``.

It needs a server (``make demo``), Chromium on the PATH and Pillow, and writes docs/images/demo.png.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

from PIL import Image

TARGET = Path(__file__).resolve().parents[1] / "docs" / "images" / "demo.png"
SHOWN = "#alpha=0&policy=lowest_senses"
SIZE = (1240, 860)


def main(url: str, shown: str = SHOWN, target: str | Path = TARGET) -> None:
    """Take the picture, in 256 colours."""
    urlopen(f"{url}/demo/examples", timeout=60).close()
    browser = (
        shutil.which("chromium")
        or shutil.which("google-chrome")
        or sys.exit("put chromium on the PATH")
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.png"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [
            "--blink-settings=preferredColorScheme=1",
            "--virtual-time-budget=20000",
            f"--screenshot={file}",
        ]
        command += [
            f"--user-data-dir={folder}/profile",
            f"--window-size={SIZE[0]},{SIZE[1]}",
            f"{url}/{shown}",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        picture = io.BytesIO()
        with Image.open(file) as image:
            image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
                picture, "PNG", optimize=True
            )
    Path(target).write_bytes(picture.getvalue())
    print(f"{target}: {Path(target).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
