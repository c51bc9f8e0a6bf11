"""The training process itself: hardware, requests, heartbeats, stacks and crash reports."""
