"""`python -m fsm_agent`: the command `fsm-agent`."""

from __future__ import annotations

from fsm_agent.cli import main

if __name__ == "__main__":
    main()
