"""The subcommands of `voxserve`: each has `HELP`, `configure(parser)` and `run(args)`."""
