"""Small things to copy and change: tables of one's own."""

from __future__ import annotations
