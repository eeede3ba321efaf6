"""Decides which work runs next; a pure state machine over core values."""
