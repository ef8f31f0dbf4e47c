"""Peak memory of a computation, counted where tensors are allocated.

torch's profiler reports every allocation and release of the tensor allocator, temporaries inside
operations included; a running sum has the peak. Resident set sizes say little at this scale:
the C library keeps what was freed before and hands it out again.
"""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(function: Callable[[], object]) -> int:
    """Most bytes that were allocated at one time, above those allocated before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        function()
    results = getattr(seen.profiler, "kineto_results", None)
    if results is None:
        raise RuntimeError("this build of torch has no kineto profiler: memory cannot be counted")
    changes = [event for event in results.events() if event.name() == "[memory]"]
    now = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        now += change.nbytes()
        peak = max(peak, now)
    return peak
