"""Tables, figures and a page from what runs leave on disk; no torch.

Reports are made by ``write_report`` and, while runs go on, served by ``serving``.
"""

from nscl.reporting.errors import MissingDataError, ReportError
from nscl.reporting.gather import Gathered, Run, gather
from nscl.reporting.live import ReportServer, serving
from nscl.reporting.missing import LeftOut
from nscl.reporting.published import Published, published
from nscl.reporting.report import Written, write_report
from nscl.reporting.series import Section, Series, sections
from nscl.reporting.tables import Table, make_table

__all__ = [
    "Gathered",
    "LeftOut",
    "MissingDataError",
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
