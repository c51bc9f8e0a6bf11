"""How N cores run one program."""
