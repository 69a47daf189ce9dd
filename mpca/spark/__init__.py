"""Spark: the bridge to the driver's JVM, sessions, and the cluster port over them. The only package that imports pyspark."""
