"""The fault campaign: what is done to runs and files on purpose, and what was lost by it."""
