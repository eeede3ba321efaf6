"""Qwen3-TTS 12 Hz."""
