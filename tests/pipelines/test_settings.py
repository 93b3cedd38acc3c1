"""From configurations to typed settings: first stages, changed options, what experiments refuse,
older runs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from in_process import configured

from backpack_rank.data.first_stage import RunFile
from backpack_rank.models.loading import save_ranker
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.training_settings import TrainingSettings


@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_a_first_stage_takes_the_place_of_all_those_of_the_data(
    script: str, tmp_path: Path
) -> None:
    (tmp_path / "run.trec").write_text("q-test-0000 Q0 d600001 1 2.0 x\n")
    small = [
        "+data.test.test_queries=3",
        "+data.test.documents=30",
        "first_stage.other_queries=true",
    ]
    first_stage_of_data = "+data.test_first_stage={_target_:backpack_rank.data.first_stage.Bm25}"
    options = [
        "data=synthetic",
        first_stage_of_data,
        "first_stage=run",
        f"first_stage.path={tmp_path / 'run.trec'}",
        *small,
    ]
    config = configured(script, *options)
    settings = EvaluationSettings.of(config).needed_dataset() if script == "evaluate" else None
    dataset = settings or TrainingSettings.of(config).dataset
    assert dataset.candidates("test")[1]["q-test-0000"] == {"d600001": 2.0}
    assert all(
        isinstance(dataset.first_stage(split), RunFile) for split in ("train", "dev", "test")
    )


@pytest.mark.parametrize(
    ("options", "ties"),
    [
        ((), "trec_eval"),
        (("bias=rekabsaz2020",), "file"),
        (("bias=rekabsaz2021",), "file"),
        (("bias=rekabsaz2021", "run=a.trec", "ties=id"), "id"),
        (("experiment=fair_retrieval/table2",), "file"),
    ],
)
def test_the_published_presets_order_equal_scores_as_the_published_code_does(
    options, ties: str
) -> None:
    assert EvaluationSettings.of(configured("evaluate", *options)).ties == ties


@pytest.mark.slow
def test_equal_scores_are_ranked_as_the_lines_stand_under_a_published_preset(
    tmp_path: Path,
) -> None:
    texts = {"d1": "he saw a bridge", "d2": "soup"}
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in texts.items())
    )
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "soup"}\n')
    values = {}
    for name in ("d1 d2", "d2 d1"):
        run = tmp_path / f"{name[:2]}.trec"
        run.write_text("".join(f"q Q0 {doc_id} 1 2.0 x\n" for doc_id in name.split()))
        for preset in ("rekabsaz2020", "default"):
            options = [f"bias={preset}", "bias.cutoffs=[1]", "bias.kinds=[bool]", f"run={run}"]
            config = configured(
                "evaluate", "data=beir", f"data.folder={tmp_path}", *options, f"output={tmp_path}"
            )
            report = evaluate(config, tmp_path / preset / name[:2])
            assert report is not None
            assert report.rows[-1].bias is not None
            values[preset, name] = report.rows[-1].bias.figures["RaB(bool)@1"].mean
    # "he" in the first document; by default the document with the last id is the first.
    assert (values["rekabsaz2020", "d1 d2"], values["rekabsaz2020", "d2 d1"]) == (1.0, 0.0)
    assert (values["default", "d1 d2"], values["default", "d2 d1"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "name",
    [
        "recruitment",
        "term_similarity",
        "answer_positions",
        "propensities",
        "lists/bias",
        "fair_retrieval/table1",
    ]
    + [f"passage_rotation/{table}" for table in ("table2", "table3", "table4", "table5", "alpha")],
)
def test_no_experiment_ignores_alpha_or_a_budget(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", str(tmp_path))
    data = [] if name == "recruitment" else ["data=synthetic"]  # it has texts of its own
    data += ["listwise=trained"] if name == "lists/bias" else []
    for option, message in (
        ("alpha=0.5", "alpha=0.5"),
        ("budget='nDCG@10>=0.1'", "budget=.* does nothing to this exp"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(
                configured("evaluate", f"experiment={name}", *data, option, f"output={tmp_path}"),
                tmp_path,
            )


def test_recommendations_of_a_run_of_version_01_are_read_by_their_names_now(
    tmp_path: Path, make_backpack, pair_tokenizer
) -> None:
    save_ranker(tmp_path / "ranker", make_backpack(), pair_tokenizer)
    recommended = {"max_length": 40, "epochs": 7, "learning_rate": 0.5, "lists_per_batch": 2}
    older = {"warmup_epochs": 3, "new_rate": 0.25}
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"model": {"name": "x", "recommended": recommended | older}})
    )
    settings = TrainingSettings.of(configured("train", f"checkpoint={tmp_path}"))
    ranking = settings.ranking()
    assert (settings.model_name, settings.max_length, ranking.epochs) == ("x", 40, 7)
    assert (ranking.optimisation.learning_rate, ranking.optimisation.head_learning_rate) == (
        0.5,
        0.25,
    )
    assert ranking.pretraining.epochs == 3
