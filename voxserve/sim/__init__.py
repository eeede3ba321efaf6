"""Predicts in virtual time with the real scheduler and a cost model."""
