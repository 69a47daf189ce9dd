"""What benches run: the real engine, and train functions that wait or compute."""
