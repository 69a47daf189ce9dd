"""Programs that spark-submit starts. They have a folder of their own, since Python puts a program's folder on its path."""
