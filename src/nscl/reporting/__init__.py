"""Tables, figures and a page from what runs leave on disk; no torch.

Reports are made by ``write_report`` and, while runs go on, served by ``serving``.
"""

from nscl.reporting.errors import NoFigureDataError, ReportError
from nscl.reporting.gather import FoundRuns, Run, gather
from nscl.reporting.page.live import ReportServer, serving
from nscl.reporting.plot_data.missing import LeftOut
from nscl.reporting.report import Written, write_report
from nscl.reporting.series import Section, Series, sections
from nscl.reporting.tables.published import Published, published
from nscl.reporting.tables.rows import Table, make_table

__all__ = [
    "FoundRuns",
    "LeftOut",
    "NoFigureDataError",
    "Published",
    "ReportError",
    "ReportServer",
    "Run",
    "Section",
    "Series",
    "Table",
    "Written",
    "gather",
    "make_table",
    "published",
    "sections",
    "serving",
    "write_report",
]
