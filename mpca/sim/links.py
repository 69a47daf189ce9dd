"""Links of a simulated executor on which nothing passes for a while; what was sent meanwhile arrives afterwards, in its order.

So it is with TCP over a network that is cut and heals: connections outlive minutes, and bytes that were sent come late and not
never. A cut in one direction is the same: without acknowledgements the other direction stands still too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpca.sim.world import World

__all__ = ["Link"]


class Link:
    """One link, open to begin with.

    Args:
        world: virtual time.
    """

    def __init__(self, world: World) -> None:
        self.opens_at = 0.0  # seconds of virtual time: the link is clogged until then
        self._world = world
        self._held: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    @property
    def is_open(self) -> bool:
        """Whether what is sent now arrives at once."""
        return self._world.now >= self.opens_at

    def clog(self, for_s: float) -> None:
        """Let nothing pass for `for_s` seconds from now on."""
        self.opens_at = max(self.opens_at, self._world.now + for_s)
        self._world.after(for_s, self._flush)

    def end(self) -> None:
        """The executor is gone: what was held arrives, and finds nobody there or is its last word."""
        self.opens_at = self._world.now
        self._flush()

    def send(self, arrive: Callable[..., Any], *arguments: Any) -> None:
        """Call `arrive(*arguments)`, now or when the link opens.

        Args:
            arrive: what happens at the other end.
            arguments: of it.
        """
        if self.is_open:
            arrive(*arguments)
        else:
            self._held.append((arrive, arguments))

    def _flush(self) -> None:
        if not self.is_open:
            return  # it was clogged anew meanwhile
        held, self._held = self._held, []
        for arrive, arguments in held:
            arrive(*arguments)
