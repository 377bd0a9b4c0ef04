"""Benchmarks. Timings are compared within one run, as ratios, and never asserted in tests."""
