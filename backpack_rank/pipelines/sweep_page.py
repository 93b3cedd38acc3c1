"""The report page of a multirun: its jobs' measures, and the texts of two of its positions of the dial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.formats import read_run
from backpack_rank.pipelines.common import CONFIG, file_part, find_ranker, load_split
from backpack_rank.pipelines.page import Turn, write_with_texts
from backpack_rank.pipelines.turned import TurnedRanker
from backpack_rank.pipelines.workload import bias_set, only
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.data import Missing, Policies, PolicyResult, Shares
from backpack_rank.reporting.rows import Figure, Report, SystemRow
from backpack_rank.reporting.sweep import MEASURES_FILE, Sweep, SweepEntry
from backpack_rank.reporting.tables import read_json

DRAWN = ("|gap|/std", "swap change/std (swapped)", "nDCG@10", "NFaiRR@10")


@dataclass(frozen=True)
class _Job:
    """A job of the sweep: its folder, its configuration and its system."""

    folder: Path
    config: DictConfig
    entry: SweepEntry


def write_sweep_page(folder: Path, sweep: Sweep) -> Path:
    """``report.html`` of a multirun, with its figures as PNG and SVG in ``figures/``."""
    page = page_of_rows("Sweep over alpha", {name: sweep.rows(name) for name in sweep.settings or ("",)}, sweep.about)
    page = replace(page, policies=policies_of(sweep, folder))
    jobs = _turned_jobs(folder, sweep)
    report = Report(tuple(entry.row for entry in sweep.entries), sweep.about)
    config = OmegaConf.load(folder / sweep.entries[-1].job / CONFIG)
    assert isinstance(config, DictConfig)
    if jobs is None:
        why = "The sweep has no position of the dial beside alpha=1 of the same setting, so nothing changes."
        return write_with_texts(folder, replace(page, changes=Missing(why)), config, report, None, None, None)
    one, other = jobs
    turned = TurnedRanker(other.config, find_ranker(other.config.checkpoint, other.config.output))
    control = turned.control(other.entry.row.alpha or 0.0)
    return write_with_texts(folder, page, other.config, report, _turn(one, other), turned, control)


def policies_of(sweep: Sweep, folder: Path) -> Policies | None:
    """Every policy at every alpha, with the scale-free measures; None where they were not taken."""
    results = []
    for entry in sweep.entries:
        if entry.row.alpha is None or not entry.row.further:
            continue
        figures = {name: figure for block in entry.row.blocks.values() for name, figure in block.figures.items()}
        policy = read_json(folder / entry.job / MEASURES_FILE).about.policy
        wordings = entry.row.further.get("wordings")
        results.append(
            PolicyResult(policy, entry.row.alpha, _shown(figures), _shares(wordings.figures) if wordings else None)
        )
    if not results:
        return None
    drawn = tuple(name for name in DRAWN if any(name in result.figures for result in results))
    return Policies(tuple(results), drawn, f"Effectiveness on {sweep.about.effectiveness_set}.")


def _shown(figures: dict[str, Figure]) -> dict[str, Figure]:
    names = (*DRAWN, "gap/std", "swap tau (swapped)", "RaB(tf)@10", "ARaB(tf)@10")
    return {name: figures[name] for name in names if name in figures}


def _shares(figures) -> Shares | None:
    shares = [figure.mean for name, figure in figures.items() if name.startswith("prefers ")]
    return Shares(*shares) if len(shares) == 3 else None


def _turned_jobs(folder: Path, sweep: Sweep) -> tuple[_Job, _Job] | None:
    """alpha = 1 and the smallest other alpha of the last setting that has both."""
    for setting in reversed(sweep.settings):
        own = [entry for entry in sweep.entries if entry.setting == setting and entry.row.alpha is not None]
        ones = [entry for entry in own if entry.row.alpha == 1]
        others = sorted((entry for entry in own if entry.row.alpha != 1), key=_alpha)
        if ones and others:
            return _job(folder, ones[0]), _job(folder, others[0])
    return None


def _alpha(entry: SweepEntry) -> float:
    return entry.row.alpha or 0.0


def _job(folder: Path, entry: SweepEntry) -> _Job:
    config = OmegaConf.load(folder / entry.job / CONFIG)
    assert isinstance(config, DictConfig)
    return _Job(folder / entry.job, config, entry)


def _turn(one: _Job, other: _Job) -> Turn:
    test = load_split(other.config.data, "test")
    bias, separate = bias_set(other.config, other.config.data, test, other.config.bias.lexicon)
    name = file_part((bias if separate else test).name)
    runs = [only(read_run(job.folder / "runs" / f"{_tag(job.entry.row)}__{name}.run"), bias) for job in (one, other)]
    before, after = (f"{job.entry.setting} {job.entry.row.label}".strip() for job in (one, other))
    return Turn(before, after, (runs[0], runs[1]), bias)


def _tag(row: SystemRow) -> str:
    return row.label.replace("=", "-")
