"""`make twins`: the same training with faults and without, at equal updates."""
