"""Why a run is slow or does not learn: rules that turn a snapshot into verdicts with the line of code. Pure."""
