"""The tools that profiles bring along: one module each."""
