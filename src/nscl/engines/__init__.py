"""Many runs: plans, local processes or a Ray cluster, the summary, and tuning.

``plan`` and ``plan_file`` make jobs, ``execute`` sends them to an engine of ``workers``, and
``display`` shows them. A run's folder is its only state, so any plan can be repeated or continued.
"""
