"""Images that the package makes itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def synth(folder: Path, count: int, *options: str) -> Path:
    command = [str(Path(sys.executable).with_name("warpfeed")), "synth", str(folder), "--count", str(count), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images of 4 classes."""
    return synth(
        tmp_path_factory.mktemp("images") / "photos", 40, "--classes", "4", "--seed", "3", "--megapixels", "0.1"
    )


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images with boxes and masks."""
    return synth(tmp_path_factory.mktemp("images") / "scenes", 12, "--detection")
