"""The simulator with real gradients: trainers that learn from data, and the joint model's error in virtual time."""
