"""Rankers on the Hugging Face hub: folders that every library here loads, and their upload.

A folder has a model card.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData

from backpack_rank.evaluation.results import SystemResult
from backpack_rank.files import atomic_path, write_text
from backpack_rank.models.cross_encoder_files import OWN_MODULE
from backpack_rank.models.loading import save_ranker
from backpack_rank.models.sequence_classifier import SequenceClassifierForRanking
from backpack_rank.reporting.measure_files import read_json
from backpack_rank.reporting.sweep import collect_sweep
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import Reranker

_Rows = list[list[str]]
_DIAL = (
    "A reranker whose gender bias is turned by one number, alpha, when it ranks: 1 is the ranker "
    "as it is, 0 turns it most."
)
_TAGS = ["sentence-transformers", "cross-encoder", "reranker", "backpack", "fairness"]
_BODY = """
# {name}

{what} It was trained with backpack_rank. It gives a query and a document one score, a raw logit of any size; higher is
better. A pair is read up to {tokens} tokens; what is longer loses the end of the document.

## Use

With backpack_rank:

```python
import backpack_rank

reranker = backpack_rank.load("{name}")
reranker.rank("a query", ["a document", "another"]{dial_arguments})
```

With sentence-transformers (6 or newer), {trust}:

```python
import backpack_rank.integrations.sentence_transformers
from sentence_transformers import CrossEncoder

model = CrossEncoder("{name}"{trust_argument})
model.predict([("a query", "a document")]{dial_arguments})
```

With PyTerrier, behind any first stage that gives texts:

```python
from backpack_rank.integrations.pyterrier import BackpackReranker

pipeline = first_stage >> BackpackReranker("{name}"{dial_arguments})
```

Over HTTP, for clients of Cohere, Jina, vLLM and text-embeddings-inference: `backpack-rank serve {name}`.
{alpha}{measured}
## Limits

Alpha acts on words of a list, such as *she* and *he*. Bias that no such word carries stays. What alpha does to other
queries, documents and languages than those measured has to be measured there. Scores of different queries, and of
different rankers, cannot be compared.
"""  # noqa: E501  lines of the card


def save_pretrained(
    reranker: Reranker,
    folder: str | Path,
    *,
    name: str | None = None,
    base_model: str | None = None,
    language: str | None = None,
    license: str | None = None,
    measures: str | Path | None = None,
    sweep: str | Path | None = None,
) -> None:
    """Share a ranker: writes a folder with a model card (``README.md``).

    ``backpack_rank.load`` and ``CrossEncoder`` read the folder.

    >>> sweep = "outputs/sweep/DATE"
    >>> backpack_rank.save_pretrained(reranker, "ranker", sweep=sweep)  # doctest: +SKIP

    The folder is complete or absent; a previous one stays until the new one is complete.

    Args:
        reranker: what :func:`backpack_rank.load` gives, of a ranker that ``train.py`` made.
        folder: where to write.
        name: hub id of the ranker, for the card; None: the name of the folder.
        base_model: hub id of what it was trained from.
        language, license: for the card, such as ``en`` and ``mit``.
        measures: ``measures.json`` of an evaluation, whose figures of the unchanged ranker the card
            names.
        sweep: folder of a multirun over alpha, which the card shows as a table.

    Raises:
        ValueError: the ranker was trained elsewhere, or measures or sweep are not of a ranker.
        FileNotFoundError: there are no such measures.
    """
    pointwise = _check_saveable(reranker)
    data = ModelCardData(
        model_name=name or Path(folder).name,
        library_name="sentence-transformers",
        pipeline_tag="text-ranking",
        tags=_TAGS,
        base_model=base_model,
        language=language,
        license=license,
        eval_results=None if measures is None else _results(Path(measures), pointwise),
    )
    table = [] if sweep is None else _table(Path(sweep))
    results: _Rows = []
    if data.eval_results:
        results.append(["data", "measure", "value"])
        for result in data.eval_results:
            results.append([result.dataset_name, result.metric_type, f"{result.metric_value:.3f}"])
    with atomic_path(folder) as temporary:
        save_ranker(temporary, pointwise.local_scorer.ranker, pointwise.local_scorer.pair_tokenizer)
        # A folder that names our module is read by other libraries only if they may import it.
        trusted = OWN_MODULE in (temporary / "modules.json").read_text(encoding="utf-8")
        text = _body(pointwise, data.model_name or "", trusted, table, results)
        write_text(temporary / "README.md", str(ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")))


def push_to_hub(
    reranker: Reranker,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str = "Upload ranker",
    **card: Any,
) -> str:
    """Upload what :func:`save_pretrained` writes.

    Gives the address of the commit, or of the pull request.

    >>> backpack_rank.push_to_hub(reranker, "me/ranker", private=True)  # doctest: +SKIP

    Args:
        reranker: see :func:`save_pretrained`.
        repo_id: ``user/name``; it is made where there is none.
        private: whether a new repository is; None: as the account says.
        token: None takes the one of ``hf auth login``, or of the variable ``HF_TOKEN``.
        revision: branch, made where there is none; None: main.
        create_pr: propose the commit instead of making it.
        commit_message: its first line.
        card: further arguments of :func:`save_pretrained`.
    """
    _check_saveable(reranker)  # before a repository is made
    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision is not None and not create_pr:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "ranker"
        save_pretrained(reranker, folder, **{"name": repo_id, **card})
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            create_pr=create_pr,
            commit_message=commit_message,
        )
    return commit.pr_url or commit.commit_url


def _check_saveable(reranker: Reranker) -> PointwiseReranker:
    if not isinstance(reranker, PointwiseReranker):
        raise ValueError(
            f"{type(reranker).__name__} cannot be saved here: give a ranker that scores one "
            "document at a time"
        )
    ranker = reranker.local_scorer.ranker
    if isinstance(ranker, SequenceClassifierForRanking):
        raise ValueError(
            f"{ranker.label} was trained elsewhere: its own folder is what other libraries load"
        )
    return reranker


def _results(path: Path, reranker: PointwiseReranker) -> list[EvalResult]:
    report = read_json(path)
    row = _unchanged_row(report.rows, reranker)
    if row is None:
        labels = ", ".join(row.label for row in report.rows)
        raise ValueError(
            f"{path} has no figures of the unchanged ranker (alpha=1), only of {labels}"
        )
    query_sets = {"effectiveness": report.about.effectiveness_set, "bias": report.about.bias_set}
    results = []
    for kind, block in row.blocks.items():
        if kind not in query_sets:
            continue
        for measure, figure in block.figures.items():
            result = EvalResult(
                task_type="text-ranking",
                dataset_type=query_sets[kind],
                dataset_name=query_sets[kind],
                metric_type=measure,
                metric_value=round(figure.mean, 4),
            )
            results.append(result)
    return results


def _unchanged_row(
    rows: Iterable[SystemResult], reranker: PointwiseReranker
) -> SystemResult | None:
    for row in rows:
        if row.alpha == 1:
            return row
    # A ranker without a dial has no alpha in its reports.
    label = reranker.local_scorer.ranker.label
    for row in rows:
        if row.label == label:
            return row
    return None


def _table(folder: Path) -> _Rows:
    """Rows of text: setting where there are several, alpha, measures."""
    sweep = collect_sweep(folder)
    entries = [entry for entry in sweep.entries if entry.row.alpha is not None]
    if not entries:
        raise ValueError(f"{folder} has no system with an alpha")
    # Columns in the order of the first entry that has them; a dict keeps the order and drops
    # repetitions.
    columns: dict[tuple[str, str], None] = {}
    for kind in ("effectiveness", "bias"):
        for entry in entries:
            if kind in entry.row.blocks:
                for measure in entry.row.blocks[kind].figures:
                    columns[kind, measure] = None

    rows = [["setting", "alpha", *(measure for _, measure in columns)]]
    for entry in entries:
        row = [entry.setting, f"{entry.row.alpha:g}"]
        for kind, measure in columns:
            block = entry.row.blocks.get(kind)
            figure = None if block is None else block.figures.get(measure)
            row.append("-" if figure is None else f"{figure.mean:.3f}")
        rows.append(row)
    # The first column would say the same in every row.
    if len(sweep.settings) == 1:
        return [row[1:] for row in rows]
    return rows


def _body(
    reranker: PointwiseReranker, name: str, trusted: bool, table: _Rows, results: _Rows
) -> str:
    """Text of the card behind its metadata.

    ``trusted`` is whether other libraries must be allowed to import this package.
    """
    what = "A reranker."
    dial_arguments = ""
    ranker = reranker.local_scorer.ranker
    if ranker.has_senses:
        what = _DIAL
        dial_arguments = ", alpha=0.5"
        if not ranker.config.groups:  # senses of words alone do little
            dial_arguments += ', policy="paired_tokens"'
    trust = "which runs its own code alone"
    trust_argument = ""
    if trusted:
        trust = "which has to be told that it may import backpack_rank"
        trust_argument = ", trust_remote_code=True"
    return _BODY.format(
        name=name,
        what=what,
        tokens=reranker.local_scorer.pair_tokenizer.max_length,
        dial_arguments=dial_arguments,
        trust=trust,
        trust_argument=trust_argument,
        alpha=_section("What alpha does to this checkpoint", table),
        measured=_section("Measures of the unchanged ranker", results),
    )


def _section(title: str, rows: _Rows) -> str:
    if not rows:
        return ""
    header, *body = rows
    lines = []
    for row in (header, ["---"] * len(header), *body):
        # A bar would end the cell of a Markdown table.
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(["", f"## {title}", "", *lines, ""])
