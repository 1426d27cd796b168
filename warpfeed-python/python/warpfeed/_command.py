"""The command `warpfeed`, as the project's binary has it."""

from __future__ import annotations

import signal
import sys

from . import _warpfeed


def main() -> int:
    # Native code runs until it is done: without Python's handler Ctrl-C ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _warpfeed.command(sys.argv[1:])
