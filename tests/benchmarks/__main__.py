"""`python -m tests.benchmarks [NAME] [ARGUMENTS]` runs the benchmark of that name, the speed by default; each is a module here."""

from __future__ import annotations

import importlib
import sys
from typing import Final

NAMES: Final = ("speed", "trail", "faults", "reliability", "memory", "bfcl", "local")


def main() -> None:
    """Hand over to the benchmark. Its arguments follow its name."""
    name = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1] in NAMES else "speed"
    raise SystemExit(importlib.import_module(f"tests.benchmarks.{name}").main())


if __name__ == "__main__":
    main()
