"""Machines of a bench on one machine: a network of namespaces, Spark's standalone daemons on it, plain TCP over it."""
