"""`make bench`: runs all cases of `mpca bench`, writes one JSON, and says what became worse since the last committed one."""
