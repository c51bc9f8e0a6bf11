"""Small programs as users write them, faulty and healthy: each fault has a comment `# fault: RULE` on its line.

`python -m tests.faulty_programs` runs them with the observers and compares the verdicts with the comments.
"""
