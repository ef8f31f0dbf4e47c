"""The report page: one HTML file that needs nothing else, and the live server of ``nscl watch``."""
