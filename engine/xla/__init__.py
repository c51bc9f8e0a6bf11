"""The XLA runtime: devices, syncs, counters and device memory."""
