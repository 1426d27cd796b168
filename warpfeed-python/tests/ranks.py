"""Two processes of one group, as torchrun starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path


def on_two_ranks(folder: Path, script: str, *arguments: str, timeout: int = 300) -> list[str]:
    """The last line that each of two processes of a script prints."""
    file = folder / "ranks.py"
    file.write_text(textwrap.dedent(script))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    of_both = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(file), *arguments],
            env={**os.environ, **of_both, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    both = [process.communicate(timeout=timeout) for process in processes]
    assert all(process.returncode == 0 for process in processes), both[0][1] + both[1][1]
    return [output.strip().splitlines()[-1] for output, _ in both]
