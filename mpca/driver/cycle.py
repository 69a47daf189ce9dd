"""The driver's machine of cycles: which order goes out when, who is in it, what a failure changes.

`exchange.py` decides (one cycle after the other); `run_machine.py` is what all machines share. Irregular flow of cycles:

* *A job fails*: the driver submits the same cycle again, without the executors that are known to be lost.
* *Fewer than `min_agents`*: no order that commits goes out. PAUSED says why, and the cycle begins again with a new freeze,
  which changes nothing for agents that are frozen already.
* *A snapshot is not finite*, or moved further than the norm limit allows (`norms.py`): it never enters a sum. Its agent takes
  the joint model as its own.
"""

from __future__ import annotations

from mpca.driver.agent_table import AgentTable
from mpca.driver.exchange import Exchange
from mpca.driver.run import Run
from mpca.driver.run_machine import RunMachine
from mpca.driver.run_shape import RunShape

__all__ = ["CycleMachine"]


class CycleMachine(RunMachine):
    """See the module's text.

    Args:
        shape: what does not change during the run.
        table: its agents, all absent.
        now: seconds of the machine's clock, at which the run is made.
    """

    def __init__(self, shape: RunShape, table: AgentTable, now: float) -> None:
        run = Run(shape, table, now)
        super().__init__(run, Exchange(run))
