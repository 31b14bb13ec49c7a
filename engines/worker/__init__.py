"""The worker: a process that pulls work for its bundle, runs the engines and answers."""
