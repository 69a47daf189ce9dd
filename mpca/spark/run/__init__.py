"""A run on Spark: its session, what is checked before it starts, and the cluster port over its executors."""
