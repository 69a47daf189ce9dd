"""When agents' own states are saved (`agent.own_state`), and by which order.

The shell asks when a backup is due. The exchange then comes to a still point between two cycles: what was frozen is summed,
what was summed is in the joint model, and that is delivered. One order there tells all agents, and the shell takes the joint
model as it is. A later attempt begins just so: with all agents at this joint model's side, and nothing on its way.

When the run stops, agents are told by the order that stops them. What was on its way then is lost to the joint model, as it is
without this.

This file sends no orders: `draft` says what the next one is to do.
"""

from __future__ import annotations

from mpca.driver.agent_table import Agent
from mpca.driver.instructions import SaveJoint
from mpca.storage import agent_file, hidden_folder
from mpca.wire.orders import Save

__all__ = ["Saves"]


class Saves:
    """One at a time.

    Args:
        term: of the driver.
        folder: URL of the backups, for Hadoop's client; empty: agents' own states are not saved.
    """

    def __init__(self, term: int, folder: str) -> None:
        self.wanted = False
        self._term, self._folder, self._number = term, folder, 0

    def want(self) -> None:
        """The shell wants all agents saved."""
        self.wanted, self._number = True, self._number + 1

    def stops(self) -> bool:
        """The run stops. Whether the agents are to be saved by the order that tells them so."""
        if self._folder and not self.wanted:
            self.want()
        return self.wanted

    def order(self, agents: list[Agent], cycle: int) -> tuple[Save, SaveJoint]:
        """What an order tells these agents, and the shell.

        Args:
            agents: who is saved.
            cycle: with which a later attempt begins.
        """
        folder = f"{self._folder}/{hidden_folder(self._term, cycle)}"
        files = {agent.ref: agent_file(agent.index, agent.incarnation) for agent in agents}
        save = Save(self._number, list(files), [f"{folder}/{name}" for name in files.values()])
        return save, SaveJoint(self._number, files)

    def done(self, save: Save) -> None:
        """An order has told the agents."""
        self.wanted = self.wanted and save.number != self._number
