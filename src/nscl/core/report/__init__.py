"""What a memory shows: reports and measured forgetting, data first and tables when printed.

Only data and text live here; ``nscl.core.checks`` computes the numbers.
"""

from nscl.core.report.forgetting import Forgetting as Forgetting
from nscl.core.report.forgetting import LayerForgetting as LayerForgetting
from nscl.core.report.forgetting import ParameterForgetting as ParameterForgetting
from nscl.core.report.forgetting import ProbeForgetting as ProbeForgetting
from nscl.core.report.forgetting import Uncounted as Uncounted
from nscl.core.report.layers import LayerReport as LayerReport
from nscl.core.report.layers import directions as directions
from nscl.core.report.memory_report import Report as Report
from nscl.core.report.names import listed as listed
from nscl.core.report.statistics import Shift as Shift
