"""The view of a run for people: the progress line while it runs, and an HTML page drawn from its records."""

from mpca.report.page import write_report
from mpca.report.progress import ProgressLine

__all__ = ["ProgressLine", "write_report"]
