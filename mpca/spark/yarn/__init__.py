"""Runs under YARN: what is asked for, the spark-submit line, the packed environment, what YARN says, what a driver knows."""
