"""Measure a ranker or a run: ``python evaluate.py alpha=0.5``, ``python evaluate.py -m alpha=1,0``.

``python evaluate.py --help`` shows examples. The steps are in
``backpack_rank/pipelines/evaluate.py``.
"""

try:
    from backpack_rank.cli import evaluate
except ModuleNotFoundError as error:
    if (error.name or "").startswith("backpack_rank"):
        raise
    raise SystemExit(
        f"{error}: activate the virtual environment, . .venv/bin/activate after `make run`, "
        "or install the package (docs/install.md)"
    ) from error

if __name__ == "__main__":
    evaluate()
