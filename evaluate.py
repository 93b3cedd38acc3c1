"""Measure a ranker or a run: ``python evaluate.py alpha=0.5``, ``python evaluate.py -m alpha=1,0``.

``python evaluate.py --help`` shows examples. The steps are in
``backpack_rank/pipelines/evaluate.py``.
"""

from backpack_rank.commands import entry_point

if __name__ == "__main__":
    entry_point("evaluate")()
