"""HDFS for a run: a store through the session's JVM, files for commands, and who holds which blocks."""
