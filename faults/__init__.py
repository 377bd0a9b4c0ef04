"""The fault campaign: injects faults into runs and files, and counts losses."""
