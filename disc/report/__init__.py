"""`disc report`: an HTML report on a directory of runs.

records → results (by experiment, task and arm) → tables, careful, figures → page
"""

from disc.report.page import write

__all__ = ["write"]
