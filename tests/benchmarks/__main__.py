"""`python -m tests.benchmarks` measures the speed; the other benchmarks are modules beside this one."""

from __future__ import annotations

from tests.benchmarks.speed import main

if __name__ == "__main__":
    main()
