"""What a person sees of a run: the progress line while it runs, and one HTML page drawn from its records."""

from mpca.report.page import write_report
from mpca.report.progress import ProgressLine

__all__ = ["ProgressLine", "write_report"]
