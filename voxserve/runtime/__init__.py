"""Runs the scheduler's jobs on a device."""
