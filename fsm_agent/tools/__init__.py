"""Tools: what one is, the registry, strict validation, fingerprints of calls, and the built-in ones."""
