"""Measuring compiled code: rounds against a peer, kernels of a call, and the machine's own limits."""

from relaxir.measure.peaks import Peaks, measure_peaks
from relaxir.measure.profiles import KernelTime, Profile, check_profiling, profile
from relaxir.measure.rounds import Comparison, Timing, interleave
from relaxir.measure.trace import write_trace

__all__ = (
    "Comparison",
    "KernelTime",
    "Peaks",
    "Profile",
    "Timing",
    "check_profiling",
    "interleave",
    "measure_peaks",
    "profile",
    "write_trace",
)
