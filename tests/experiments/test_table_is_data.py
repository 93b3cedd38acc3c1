"""A paper's table is data: another one needs files, and no Python, for each of the five papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from in_process import configured
from omegaconf import OmegaConf

from backpack_rank.files import resource_folder
from backpack_rank.position.tables.reranking_grid import grid_table
from backpack_rank.position.tables.rotation import effect_table, transfer_table
from backpack_rank.position.tables.rotation_similarity import similarity_table
from backpack_rank.position.tables.sorting import sorting_table
from backpack_rank.reporting.fair_retrieval_tables import paper_table
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import to_markdown

CONF = resource_folder("conf")
LAYOUTS: dict[str, Callable[[str], Table]] = {
    "FairRetrievalTable": lambda path: paper_table(published(path), {}, "12 queries"),
    "RerankingGrid": lambda path: grid_table(path, {}, "my ranker"),
    "SortingTask": lambda path: sorting_table(path, {}),
    "RotationEffect": lambda path: effect_table(published(path), {}, "squad"),
    "RotationTransfer": lambda path: transfer_table(published(path), {}, [()] * 3, "squad"),
    "RotationSimilarity": lambda path: similarity_table(published(path), {}),
}
"""What a task writes before anything was measured."""


def experiments_with_figures() -> dict[str, str]:
    """Experiments that stand beside the figures of a paper, with the name of these."""
    found = {}
    for file in sorted((CONF / "experiment").rglob("*.yaml")):
        task = yaml.safe_load(file.read_text("utf-8")).get("task", {})
        name = task.get("published")
        if name is not None and published(name).rows:
            found[str(file.relative_to(CONF / "experiment").with_suffix(""))] = name
    return found


EXPERIMENTS = experiments_with_figures()
del EXPERIMENTS["passage_rotation/alpha"]  # it takes names from a published table, and no figures


def test_every_paper_has_tables() -> None:
    assert len({published(name).paper for name in EXPERIMENTS.values()}) == 5


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_table_of_ones_own_is_a_file(experiment: str, tmp_path: Path, monkeypatch) -> None:
    """The same layout with another row, another title and other notes."""
    monkeypatch.setenv("BACKPACK_RANK_DATA", "/nowhere")
    table = published(EXPERIMENTS[experiment])
    content = yaml.safe_load((CONF / "published" / f"{table.name}.yaml").read_text("utf-8"))
    # The model of the last row, wherever it stands in its labels, has another name and figures.
    *labels, _ = content["rows"].strip().splitlines()[-1].split("|")
    model = labels[-1].strip() if labels[0].strip().isdigit() else labels[0].strip()
    lines = []
    for line in content["rows"].strip().splitlines():
        *labels, figures = line.split("|")
        if any(label.strip() == model for label in labels):
            labels = ["My ranker" if label.strip() == model else label for label in labels]
            figures = " " + " ".join(["0.123"] * len(figures.split()))
        lines.append("|".join([*labels, figures]))
    content |= {"rows": "\n".join(lines), "title": "My table", "notes": ["As I found it."]}
    content.pop("known_as", None)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")

    config = configured("evaluate", f"experiment={experiment}", f"task.published={path}")
    assert config.task.published == str(path)
    task = OmegaConf.to_container(config.task, resolve=False)
    written = to_markdown(LAYOUTS[task["_target_"].rpartition(".")[2]](str(path)))
    for words in ("My table", "My ranker", "123", "As I found it."):
        assert words in written
