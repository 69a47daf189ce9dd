"""Tests mirror the source path; see the README, "Development"."""
