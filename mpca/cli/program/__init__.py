"""Holds the one file that spark-submit starts. Alone in its folder, since Python puts a program's folder on its path."""
