"""Engines: the work protocol, the dispatcher, the worker process, one adapter per engine, the model catalog."""
