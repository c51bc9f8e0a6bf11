"""The training process: hardware, requests, heartbeats, stacks and crash reports."""
