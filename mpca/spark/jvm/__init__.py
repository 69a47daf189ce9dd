"""The JVMs that Python speaks with: the driver's own, and a small one for commands. Nothing of a run."""
