"""What a user's own program calls on the driver: `Distributor` and the objectives."""

from mpca.api.distributor import Distributor, Result
from mpca.driver.objectives import DumpModel, EarlyStopping, Evaluate, KeepBest, MaxCycles, MaxTime, Target

__all__ = ["Distributor", "DumpModel", "EarlyStopping", "Evaluate", "KeepBest", "MaxCycles", "MaxTime", "Result", "Target"]
