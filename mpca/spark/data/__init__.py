"""Data sets that Spark makes: a DataFrame written as shards, and a tar of tars as such a DataFrame."""
