"""Predicts as `python -m engine.commands.predict` does, then prints whether the runtime was imported."""

from __future__ import annotations

import sys

from engine.commands import predict

if __name__ == "__main__":
    code = predict.main(sys.argv[1:])
    sys.stderr.write(f"{'torch_xla' in sys.modules}\n")
    sys.exit(code)
