"""Train a ranker: ``python train.py [data=...] [model=...] [trainer=gpu]``.

``python train.py --help`` shows examples. The steps are in ``backpack_rank/pipelines/train.py``.
"""

try:
    from backpack_rank.cli import train
except ModuleNotFoundError as error:
    if (error.name or "").startswith("backpack_rank"):
        raise
    raise SystemExit(
        f"{error}: activate the virtual environment, . .venv/bin/activate after `make run`, "
        "or install the package (docs/install.md)"
    ) from error

if __name__ == "__main__":
    train()
