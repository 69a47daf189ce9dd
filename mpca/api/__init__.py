"""What a user's own program calls on the driver: `Distributor` and the objectives."""

from mpca.api.distributor import Distributor, Result
from mpca.driver.objectives import DumpModel, Evaluate, MaxCycles, MaxTime, TargetError

__all__ = ["Distributor", "DumpModel", "Evaluate", "MaxCycles", "MaxTime", "Result", "TargetError"]
