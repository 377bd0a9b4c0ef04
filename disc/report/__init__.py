"""`disc report`: an HTML report on a directory of runs.

load (runs by experiment, task and arm) → tables, details, figures → page
"""

from disc.report.page import write

__all__ = ["write"]
