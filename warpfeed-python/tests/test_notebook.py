"""What help(), signatures and a notebook show."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("torch")


def test_a_notebook_shows_a_loader(photos: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    setup = f"""
        from warpfeed import transforms as t
        from warpfeed.torch import DataLoader
        steps = [t.RandomResizedCrop(32), t.Normalize((0.5,) * 3, (0.25,) * 3)]
        loader = DataLoader({str(photos)!r}, 8, shuffle=True, transform=steps, num_workers=2)
    """
    cells = [inspect.cleandoc(setup), "loader", "help(DataLoader)", "help(loader.recipe)", "DataLoader('x', sed=3)"]
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbclient.NotebookClient(notebook, timeout=120, allow_errors=True, kernel_name="python3").execute()
    shown = notebook.cells[1].outputs[0].data
    for words in ("40 samples of 4 classes", "5 of 8 images", "cpu", "random_resized_crop, normalize", "[3, 32, 32]"):
        assert words in shown["text/html"]
    assert "40 samples" in shown["text/plain"] and "data:image/png;base64," in shown["text/html"]
    for cell in notebook.cells[2:4]:
        assert "seed" in cell.outputs[0].text or "epoch" in cell.outputs[0].text
    error = notebook.cells[4].outputs[0]
    assert (error.ename, error.evalue) == ("TypeError", "DataLoader has no argument 'sed': did you mean 'seed'?")


def test_help_lists_typed_arguments() -> None:
    code = "from warpfeed.torch import DataLoader; help(DataLoader.__init__)"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\s+", " ", text)
    assert "batch_size: 'int | None' = 1" in text and "seed: 'int | None' = None" in text and "**" not in text


def test_types_are_checked_before_anything_runs(tmp_path: Path) -> None:
    """A misspelled name and a wrong type are found by mypy, and by pyright in `run`."""
    program = tmp_path / "program.py"
    program.write_text("from warpfeed.torch import DataLoader\nDataLoader('x', sed=3)\nDataLoader('x', seed='a')\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert 'Unexpected keyword argument "sed"' in done.stdout and 'incompatible type "str"' in done.stdout, done.stdout
