"""Clocks of a simulated machine: a monotonic one of its own origin, and a wall clock that may be off and be set at any moment.

What ``org.mpca.rdd.DriverClock`` is in production: deadlines come as times of the driver's monotonic clock, and times of
reports go back as such, by an offset that was measured when the executor began.
"""

from __future__ import annotations

from mpca.sim.world import World

__all__ = ["NodeClock"]


class NodeClock:
    """`up_s`: how long the machine was up when virtual time began; `ahead_s`: its wall clock, beside the true one."""

    def __init__(self, world: World, up_s: float, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s
        self._world, self._up_s = world, up_s
        self._offset = world.clock.now() - self.now()  # the driver was asked

    def now(self) -> float:
        return self._world.now + self._up_s

    def wall(self) -> float:
        return self._world.true_wall() + self.ahead_s

    def here(self, driver_time: float) -> float:
        """A time of the driver's clock as one of this machine's."""
        return driver_time - self._offset

    def of_driver(self, time_here: float) -> float:
        """A time of this machine's clock as one of the driver's."""
        return time_here + self._offset
