"""The same work by other means: programs, run in the peers' environment (the hand-written ones in ours)."""
