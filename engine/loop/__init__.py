"""The training loop: a trainer that runs steps, evaluates, saves and reports."""
