"""Owns time and life: the serving thread, streams, results."""
