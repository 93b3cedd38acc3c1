"""What Python code prints under several seeds of Python's hashes."""

from __future__ import annotations

import os
import subprocess
import sys


def printed_under_hash_seeds(code: str, *seeds: str) -> list[str]:
    """What the code prints, in a process of its own for each seed."""
    printed = []
    for seed in seeds:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        printed.append(subprocess.check_output(command, env=environment, text=True))
    return printed
