"""Why a run is slow: rules that turn the evidence of a snapshot into verdicts with the line of code. Pure."""
