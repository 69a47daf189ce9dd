"""`make soak HOURS=n`: one run on the cluster of containers that meets a fault every two minutes, and what grows meanwhile."""
