"""What benches run: the engine as production starts it, and train functions that wait or compute."""
