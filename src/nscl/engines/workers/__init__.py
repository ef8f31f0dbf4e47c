"""Where runs are executed: processes of this machine, or the workers of a Ray cluster.

``run_queue`` has the order of runs, ``local`` and ``ray_engine`` are the two engines, ``worker``
and ``ray_worker`` their processes. Ray is imported only when it is asked for.
"""
