"""How an ingested data set is streamed: the numbers of [data] that it has besides its path. Checked, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from mpca.checks import refused

__all__ = ["StreamOptions"]


@dataclass(frozen=True)
class StreamOptions:
    """Keys of [data] that a streamed data set knows besides its path."""

    workers: int = 1
    """Decoding processes of one agent."""
    read_ahead: int = 64 << 20
    """Bytes of JPEGs that an agent holds."""
    cache: int = 0
    """Bytes of the local copy of what was read; 0: none. With one an agent reads the same records in every epoch."""
    crop: int = 224
    """Pixels of an edge of what a model sees."""
    shorter_edge: int = 256
    """Pixels that the shorter edge is scaled to before."""
    test_view: str = "random"
    """What is evaluated on: a "random" view of each image, always the same (the paper), or the "centre"."""

    def __post_init__(self) -> None:
        for key, least in (("workers", 1), ("read_ahead", 1 << 20), ("cache", 0), ("crop", 1), ("shorter_edge", self.crop)):
            if getattr(self, key) < least:
                raise refused(f"data.{key}", getattr(self, key), f"must be {least} or more")
        if self.test_view not in ("random", "centre"):
            raise refused("data.test_view", self.test_view, "must be random or centre")
