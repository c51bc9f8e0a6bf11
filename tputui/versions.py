"""Which torch and torch_xla the engine is built for. Imports neither."""

from __future__ import annotations

SERIES = "2.9"
INSTALL = "pip install 'tputui[xla]'"


def version_problem(torch: str | None, torch_xla: str | None) -> str | None:
    """Why these versions cannot train, with what to type; None where they can. A version is None where it is absent."""
    found = {"torch": torch, "torch_xla": torch_xla}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return missing_sentence(missing)
    wrong = [f"{name} {version}" for name, version in found.items() if version and not _fits(version)]
    if wrong:
        return (
            f"{' and '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not fit: {SERIES} is needed of both, since "
            f"torch_xla is built against exactly one torch; "
            f"pip install 'torch=={SERIES}.*' 'torch_xla=={SERIES}.*'"
        )
    return None


def missing_sentence(packages: list[str]) -> str:
    """That these packages are not installed, with what to type."""
    return f"{' and '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed; {INSTALL}"


def _fits(version: str) -> bool:
    return version.split("+")[0].split(".")[:2] == SERIES.split(".")
