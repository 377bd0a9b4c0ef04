"""The authors' own DISC on today's environments, evaluated as ours is."""
