"""The gateway's side of the bus: submitting work, following its events, knowing the workers."""
