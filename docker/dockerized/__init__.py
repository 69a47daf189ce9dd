"""A Hadoop of six containers for docker/up, docker/down and the tests in tests/docker: engine, image, cluster.

Not a part of mpca: it is not in the wheel, and no run needs it.
"""
