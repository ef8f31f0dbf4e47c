"""The report page: one HTML file that needs nothing else, and the live server of ``nscl watch``.

``html`` fills ``templates``, ``scripts`` has the scripts that are inlined, ``charts`` the charts.
A page must open from disk without a network.
"""
