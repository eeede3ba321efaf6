"""vox-tiny: the bundled 24 kHz English model."""
