"""The JVMs that Python talks to: the driver's own, and a small one for commands. Nothing here knows of runs."""
