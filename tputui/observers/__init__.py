"""Observers of torch_xla, torch.compile and JAX inside a training process: events of diagnosis, by line of code.

They import no framework: they start once the program has imported one, and use it through `sys.modules`. An observer
never raises into the program, never reads a tensor and causes no compilation or transfer.
"""
