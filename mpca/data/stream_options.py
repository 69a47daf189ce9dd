"""Options for streaming an ingested data set: its keys of [data] besides the path, and their checks."""

from __future__ import annotations

from dataclasses import dataclass

from mpca.checks import refused

__all__ = ["StreamOptions"]


@dataclass(frozen=True)
class StreamOptions:
    """Keys of [data] that a streamed data set has besides its path.

    Raises:
        ConfigError: a value is out of range.
    """

    workers: int = 1
    """Decoding processes of one agent."""
    decoder: str = "cpu"
    """What decodes an agent's images: "cpu", those processes; or "cuda", its GPU by nvJPEG, without processes."""
    read_ahead: int = 64 << 20
    """Bytes of JPEGs that an agent holds."""
    cache: int = 0
    """Bytes of the local copy of records; 0 for no copy. With a copy an agent reads the same records in every epoch."""
    crop: int = 224
    """Pixels of an edge of the patch that the model gets."""
    shorter_edge: int = 256
    """Pixels of the image's shorter edge, to which it is scaled before the crop."""
    test_view: str = "random"
    """The patch for evaluation: "random", equal in all evaluations (the paper), or "centre"."""

    def __post_init__(self) -> None:
        for key, least in (("workers", 1), ("read_ahead", 1 << 20), ("cache", 0), ("crop", 1), ("shorter_edge", self.crop)):
            if getattr(self, key) < least:
                raise refused(f"data.{key}", getattr(self, key), f"must be {least} or more")
        if self.decoder not in ("cpu", "cuda"):
            raise refused("data.decoder", self.decoder, "must be cpu or cuda")
        if self.test_view not in ("random", "centre"):
            raise refused("data.test_view", self.test_view, "must be random or centre")
