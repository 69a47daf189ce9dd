"""Clocks of a simulated machine: a monotonic one with an origin of its own, and a wall clock that may be wrong or set at any
time.

In production this is ``org.mpca.rdd.DriverClock``: deadlines come, and times of reports go back, as times of the driver's
monotonic clock. An offset that was measured when the executor began turns one into the other.
"""

from __future__ import annotations

from mpca.sim.world import World

__all__ = ["NodeClock"]


class NodeClock:
    """Both clocks of one machine. Times are in seconds.

    Args:
        world: virtual time.
        up_s: how long the machine was up when virtual time began.
        ahead_s: how far its wall clock is ahead of the true one.
    """

    def __init__(self, world: World, up_s: float, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s
        self._world, self._up_s = world, up_s
        self._offset = world.clock.now() - self.now()  # the executor asked the driver

    def now(self) -> float:
        """Seconds of this machine's monotonic clock."""
        return self._world.now + self._up_s

    def wall(self) -> float:
        """Seconds since 1970, as this machine has them."""
        return self._world.true_wall() + self.ahead_s

    def here(self, driver_time: float) -> float:
        """A time of the driver's clock as a time of this machine's clock."""
        return driver_time - self._offset

    def of_driver(self, time_here: float) -> float:
        """A time of this machine's clock as a time of the driver's clock."""
        return time_here + self._offset
