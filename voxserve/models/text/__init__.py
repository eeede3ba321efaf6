"""Written English to words a small voice can read."""
