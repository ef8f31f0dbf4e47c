"""Speed and memory side by side: ours, and the dense way, measured in the same run.

``python -m benchmarks`` prints one table. A figure is one function in one of the modules named in
``catalogue.MODULES``; ``docs/benchmarks.md`` says what is measured and how.
"""
