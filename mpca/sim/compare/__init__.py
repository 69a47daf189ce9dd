"""Methods compared by how long they take to an error: many simulated runs with real gradients, chosen from and reported fairly.

What makes it fair is in `fairness.py`, and which runs there are in `plan.py`. Both are pure: they are given curves and say what
to run next. `settings.py` reads the file, `unit.py` simulates, `journal.py` keeps results, `running.py` drives processes,
`result.py` makes the table. The papers' own figures are in `figures.py` and `untrained.py`.
"""
