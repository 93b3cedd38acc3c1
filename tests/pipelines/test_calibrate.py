"""``backpack-rank calibrate``: probabilities that are right, a table that says so, and no half files.

The ranker is a small BERT of transformers. Judgements are drawn with probabilities that follow its
own scores at alpha = 1, so what the map should be is known.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from foreign_rankers import WORDS, bert
from foreign_rankers import saved as save
from in_process import INLINE, configured
from omegaconf import OmegaConf
from rerank_servers import running
from workplace import ROOT

from backpack_rank import cli
from backpack_rank.attributes.attribute import Attribute
from backpack_rank.checks import UsageError
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.models.pooled_map import MAP_FILE
from backpack_rank.pipelines.calibrate import calibrate
from backpack_rank.reranking.load import load
from backpack_rank.reranking.score_calibration import Calibration, IsotonicMap
from backpack_rank.senses.erase import Erase
from backpack_rank.serving.kinds import served

pytest.importorskip("sklearn")
SLOPE, QUERIES, DOCUMENTS = 4.0, 40, 50


def texts(generator: np.random.Generator, number: int, length: int) -> list[str]:
    return [" ".join(generator.choice(WORDS[:10], size=length)) for _ in range(number)]


def drawn_judgements(
    generator: np.random.Generator, scores: np.ndarray, queries: dict, documents: dict
) -> dict[str, dict[str, int]]:
    """Grades 0 and 2 of all pairs, drawn with probabilities that rise with their scores."""
    scaled = SLOPE * (scores - np.median(scores)).astype(float) / scores.std()
    relevant = generator.random(len(scores)) < 1 / (1 + np.exp(-scaled))
    grades = iter((2 * relevant).tolist())
    return {query: {document: next(grades) for document in documents} for query in queries}


@pytest.fixture(scope="module")
def ranker_and_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The folder of a ranker, and data with a dev and a test split of its own judgements."""
    folder = tmp_path_factory.mktemp("calibrated") / "ranker"
    save(bert, folder)
    reranker = load(folder)
    generator = np.random.default_rng(0)
    data = {"name": "drawn", "measures": ["nDCG@10"]}
    for split in ("dev", "test"):
        queries = {f"q{n}": text for n, text in enumerate(texts(generator, QUERIES, 3))}
        documents = {f"d{n}": text for n, text in enumerate(texts(generator, DOCUMENTS, 7))}
        pairs = [(query, text) for query in queries.values() for text in documents.values()]
        qrels = drawn_judgements(generator, reranker.predict(pairs), queries, documents)
        data[split] = {
            "_target_": INLINE,
            "name": f"drawn/{split}",
            "queries": queries,
            "documents": documents,
            "qrels": qrels,
        }
    data["first_stage"] = {"_target_": "backpack_rank.data.first_stage.GivenCandidates"}
    return folder, data


def composed(ranker_and_data: tuple[Path, dict], output: Path, *options: str, **changes: object):
    folder, data = ranker_and_data
    config = configured("calibrate", f"checkpoint={folder}", f"output={output}", *options)
    OmegaConf.set_struct(config, False)
    config.data = {**data, **changes}
    return config


@pytest.fixture(scope="module")
def calibrated(ranker_and_data, tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """A function that gives the folder of a calibration at alpha 1 and 0, and what was printed.

    Each method is fitted once; nobody writes to its folder.
    """

    @cache
    def fitted(method: str) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp(method)
        config = composed(ranker_and_data, folder, f"method={method}", "alphas=[1,0]")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            path = calibrate(config)
        assert path == folder / "calibration.json"
        return folder, " ".join(printed.getvalue().split())

    return fitted


def pairs_of(split: dict) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Texts and labels of all pairs of a split, read without the code under test."""
    pairs, labels = [], []
    for query_id, judged in split["qrels"].items():
        for doc_id, grade in judged.items():
            pairs.append((split["queries"][query_id], split["documents"][doc_id]))
            labels.append(grade > 0)
    return pairs, np.array(labels)


def error_by_hand(probabilities: np.ndarray, relevant: np.ndarray, bins: int = 15) -> float:
    total = 0.0
    for number in range(bins):
        inside = np.minimum((probabilities * bins).astype(int), bins - 1) == number
        if inside.any():
            total += abs(relevant[inside].mean() - probabilities[inside].mean()) * inside.mean()
    return total


@pytest.mark.slow
@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_the_table_has_the_errors_of_what_rank_shows_and_calibration_mends_them(
    ranker_and_data, calibrated, method
):
    folder, data = ranker_and_data
    written, printed = calibrated(method)
    assert "Expected calibration error on drawn/test" in printed
    assert "fitted on drawn/dev (2,000 pairs of 40 queries" in printed
    assert "The dial " in printed
    pairs, relevant = pairs_of(data["test"])
    reranker = load(folder, calibration=written)
    maps = Calibration.read(written / "calibration.json").maps
    rows = list(csv.DictReader((written / "calibration.csv").open()))
    assert [float(row["alpha"]) for row in rows] == [1.0, 0.0]
    for row in rows:
        alpha = float(row["alpha"])
        raw = reranker.predict(pairs, alpha=alpha)
        sigmoid = 1 / (1 + np.exp(-raw.astype(float)))
        probabilities = reranker.predict(pairs, alpha=alpha, activation="calibrated")
        first = maps[1.0](raw)
        assert float(row["sigmoid"]) == pytest.approx(error_by_hand(sigmoid, relevant), abs=1e-4)
        assert float(row["own_map"]) == pytest.approx(
            error_by_hand(probabilities, relevant), abs=1e-4
        )
        assert float(row["first_map"]) == pytest.approx(error_by_hand(first, relevant), abs=1e-4)
        assert float(row["own_map"]) < 0.5 * float(row["sigmoid"])
        assert float(row["change_low"]) <= float(row["change"]) <= float(row["change_high"])
    assert float(rows[0]["own_map"]) < 0.05
    assert (rows[0]["change"], rows[0]["own_map"]) == ("0.0", rows[0]["first_map"])
    assert {file.name for file in written.iterdir()} == {
        *("calibration.json", "calibration.md", "calibration.csv", "calibration.tex"),
    }


@pytest.mark.slow
def test_the_dial_breaks_calibration_by_a_point_of_a_hundred_and_more_than_chance(
    ranker_and_data, tmp_path
):
    """An interval over queries leaves out 0 for changes that are of no use to anybody, too."""
    _, data = ranker_and_data
    # Hardly any document is relevant on test, so predictions are too high, and the error in one bin
    # is their mean less a constant: it grows with alpha for nearly every query, by very little.
    first, *_ = data["test"]["documents"]
    qrels = {
        query: {document: 2 * (document == first) for document in judged}
        for query, judged in data["test"]["qrels"].items()
    }
    rare = {**data["test"], "qrels": qrels}
    options = ["policy=paired_tokens", "alphas=[1,1.01,0.99]", "bins=1"]
    calibrate(composed(ranker_and_data, tmp_path, *options, test=rare))
    rows = list(csv.DictReader((tmp_path / "calibration.csv").open()))
    small = [row for row in rows if float(row["change_low"]) > 0]
    assert [abs(float(row["change"])) < 0.01 for row in small] == [True]
    note = " ".join((tmp_path / "calibration.md").read_text().split())
    assert "does not break calibration: by the map of alpha=1, the error grows by 0.01 or" in note

    calibrate(
        composed(
            ranker_and_data,
            tmp_path,
            "policy=paired_tokens",
            "policy.queries=all",  # most queries here have a class word
            "alphas=[1,0.9,0]",
        )
    )
    rows = list(csv.DictReader((tmp_path / "calibration.csv").open()))
    assert float(rows[2]["change"]) > 0.05
    assert float(rows[2]["change_low"]) > 0
    note = " ".join((tmp_path / "calibration.md").read_text().split())
    assert "The dial breaks calibration at alpha=0: the map of alpha=1 is off by 0.01 or" in note


@pytest.mark.slow
def test_the_map_is_that_of_scikit_learn_on_the_dev_split(ranker_and_data, calibrated):
    from sklearn.isotonic import IsotonicRegression

    folder, data = ranker_and_data
    written, _ = calibrated("isotonic")
    dev, labels = pairs_of(data["dev"])
    reranker = load(folder, activation="calibrated", calibration=written / "calibration.json")
    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(reranker.predict(dev, activation="logits").astype(float), labels)
    test, _ = pairs_of(data["test"])
    expected = model.predict(reranker.predict(test, activation="logits").astype(float))
    # Scores of another batch differ in their last bits, and steps are steep.
    assert np.abs(reranker.predict(test) - expected).mean() < 1e-3


@pytest.mark.slow
def test_a_server_gives_probabilities_and_warns_once_at_other_alphas(
    ranker_and_data, calibrated, caplog
):
    folder, data = ranker_and_data
    written, _ = calibrated("platt")
    texts = list(data["test"]["documents"].values())[:12]
    query = next(iter(data["test"]["queries"].values()))
    reranker = load(folder, activation="calibrated", calibration=written)
    plain = load(folder)

    def shown(server, **body):
        answer = server.rerank(query=query, documents=texts, **body)
        assert answer.status_code == 200, answer.text
        results = answer.json()["results"]
        return {row["index"]: row["relevance_score"] for row in results}

    loaders = {
        "ready": lambda: served(
            "ready", load(folder, activation="calibrated", calibration=written)
        ),
        "plain": lambda: served("plain", load(folder)),
    }
    with running(loaders) as server:
        for alpha in (1.0, 0.0):
            rows = reranker.rank(query, texts, alpha=alpha)
            expected = {row["corpus_id"]: row["score"] for row in rows}
            shown_scores = shown(server, model="ready", alpha=alpha)
            assert list(shown_scores) == list(expected)
            assert shown_scores == pytest.approx(expected, abs=1e-6)
        logits = plain.predict([(query, text) for text in texts]).astype(float)
        sigmoid = dict(enumerate(1 / (1 + np.exp(-logits))))
        assert shown(server, model="plain") == pytest.approx(sigmoid, abs=1e-6)
        assert shown(server, model="ready", activation="sigmoid") == pytest.approx(
            sigmoid, abs=1e-6
        )
        as_logits = dict(enumerate(logits))
        for raw in ({"raw_scores": True}, {"activation": "logits"}):
            assert shown(server, model="ready", **raw) == pytest.approx(as_logits, abs=1e-5)

        caplog.clear()
        with caplog.at_level(logging.WARNING, "backpack_rank.reranking.score_calibration"):
            shown(server, model="ready", alpha=0.5)
            shown(server, model="ready", alpha=0.75)
        message = [record.getMessage() for record in caplog.records if "fitted" in record.msg]
        assert len(message) == 1
        assert "alpha=0.5" in message[0]

        for body, status, message in (
            ({"model": "plain", "activation": "calibrated"}, 400, "plain has no calibration"),
            ({"activation": "softmax"}, 422, "activation"),
            ({"raw_scores": True, "activation": "sigmoid"}, 400, "leave one of them out"),
        ):
            answer = server.rerank(query=query, documents=texts, **body)
            assert answer.status_code == status
            assert message in answer.json()["message"]


def platt_by_hand(path: Path, alpha: float, scores: np.ndarray) -> np.ndarray:
    """Probabilities from the numbers of the file."""
    (row,) = [row for row in json.loads(path.read_text())["maps"] if row["alpha"] == alpha]
    return 1 / (1 + np.exp(-(row["slope"] * scores.astype(float) + row["intercept"])))


@pytest.mark.slow
def test_under_erase_scores_stay_probabilities_and_other_alphas_are_warned_of(
    ranker_and_data, tmp_path, caplog
):
    _, data = ranker_and_data
    folder = tmp_path / "ranker"
    save(bert, folder)
    dev = data["dev"]
    collection = Collection("dev", MemoryStore(dev["documents"]), dev["queries"], {})
    policy = Erase(Attribute.named("gender")).fitted(
        load(folder), Pairs.from_run(dev["qrels"], collection)
    )
    policy.save(folder / MAP_FILE)
    config = composed((folder, data), folder, "policy=erase", "alphas=[1,0]")
    path = calibrate(config)
    assert json.loads(path.read_text())["policy"] == "erase_leace"

    asks = Attribute.named("gender").group_queries
    query = next(text for text in data["test"]["queries"].values() if not asks(text))
    documents = list(data["test"]["documents"].values())
    raw, ready = load(folder), load(folder, activation="calibrated")
    pairs = [(query, text) for text in documents]
    where = "backpack_rank.reranking.score_calibration"
    with caplog.at_level(logging.WARNING, where):
        for alpha in (1.0, 0.0):
            logits = raw.predict(pairs, alpha=alpha, policy="erase")
            expected = platt_by_hand(path, alpha, logits)
            probabilities = ready.predict(pairs, alpha=alpha, policy="erase")
            assert probabilities == pytest.approx(expected, abs=1e-6)
            assert ((probabilities > 0) & (probabilities < 1)).all()
            middle = float(np.median(probabilities))
            kept = ready.rank(query, documents, alpha=alpha, policy="erase", score_threshold=middle)
            assert {row["corpus_id"] for row in kept} == set(
                np.flatnonzero(probabilities >= middle)
            )
            assert (
                kept.below_threshold == len(documents) - len(kept) == (probabilities < middle).sum()
            )
    assert caplog.records == []
    assert np.abs(logits - raw.predict(pairs)).max() > 1e-3, "erasing does something"

    # A threshold at another alpha is by the nearest map, which is said once.
    with caplog.at_level(logging.WARNING, where):
        kept = ready.rank(query, documents, alpha=0.7, policy="erase", score_threshold=middle)
        ready.rank(query, documents, alpha=0.7, policy="erase", score_threshold=middle)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("probabilities at alpha=0.7 of policy erase_leace are by a map that")
    assert "alpha=1 of policy erase_leace (fitted: 1, 0)" in warning
    expected = platt_by_hand(path, 1.0, raw.predict(pairs, alpha=0.7, policy="erase"))
    assert kept.below_threshold == (expected < middle).sum()


@pytest.mark.slow
def test_probabilities_of_long_documents_are_those_of_their_best_chunks(ranker_and_data, tmp_path):
    from sklearn.isotonic import IsotonicRegression

    folder, data = ranker_and_data
    thorough = load(folder).reading("chunks")
    generator = np.random.default_rng(1)
    splits = {}
    for split in ("dev", "test"):
        queries = data[split]["queries"]
        documents = {f"d{n}": text for n, text in enumerate(texts(generator, 20, 50))}
        pairs = [(query, text) for query in queries.values() for text in documents.values()]
        qrels = drawn_judgements(generator, thorough.predict(pairs), queries, documents)
        splits[split] = {**data[split], "documents": documents, "qrels": qrels}
    options = ["method=isotonic", "alphas=[1,0]", "scoring.long_documents=chunks"]
    calibrate(composed(ranker_and_data, tmp_path, *options, **splits))

    ready = load(folder, activation="calibrated", calibration=tmp_path).reading("chunks")
    pairs, _ = pairs_of(splits["test"])
    dev, labels = pairs_of(splits["dev"])
    for alpha in (1.0, 0.0):
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        model.fit(thorough.predict(dev, alpha=alpha).astype(float), labels)
        expected = model.predict(thorough.predict(pairs, alpha=alpha).astype(float))
        probabilities = ready.predict(pairs, alpha=alpha)
        # Scores of another batch differ in their last bits, and steps are steep.
        assert np.abs(probabilities - expected).mean() < 1e-3
        # No chunk is more probable than its document.
        firsts = ready.predict(pairs, alpha=alpha, long_documents="cut")
        assert (probabilities >= firsts - 1e-6).all()
        assert (probabilities > firsts + 0.01).any()

    query = pairs[0][0]
    documents = list(splits["test"]["documents"].values())
    kept = ready.rank(query, documents, score_threshold=0.5)
    of_query = ready.predict([(query, text) for text in documents])
    assert kept.below_threshold == (of_query < 0.5).sum() > 0


@pytest.mark.slow
def test_it_lies_beside_the_ranker_unless_another_folder_is_given(ranker_and_data, tmp_path):
    folder = tmp_path / "own" / "ranker"
    save(bert, folder)
    config = composed((folder, ranker_and_data[1]), tmp_path, "alphas=[1]")
    config.output = None
    assert calibrate(config) == folder / "calibration.json"
    scores = load(folder, activation="calibrated").predict([("the doctor", "he saw a nurse")])
    assert 0 < scores[0] < 1


def test_a_sealed_ranker_may_be_calibrated(make_backpack, pair_tokenizer, tmp_path):
    from backpack_rank.models.loading import save_ranker
    from backpack_rank.reranking.score_calibration import PlattMap

    save_ranker(tmp_path / "ranker", make_backpack(), pair_tokenizer)
    Calibration({1.0: PlattMap(1, 0)}, "lowest_senses", "platt", "dev").write(
        tmp_path / "ranker" / "calibration.json"
    )
    assert load(tmp_path / "ranker", activation="calibrated").activation == "calibrated"


@pytest.mark.slow
def test_what_fails_half_way_leaves_what_was_there(ranker_and_data, calibrated, tmp_path):
    _, data = ranker_and_data
    there = tmp_path / "there"
    shutil.copytree(calibrated("platt")[0], there)
    before = {file.name: file.read_bytes() for file in there.iterdir()}
    # The dev split is scored and fitted; that the test split has one kind of label comes out later.
    one_kind = {query: dict.fromkeys(judged, 2) for query, judged in data["test"]["qrels"].items()}
    test = {**data["test"], "qrels": one_kind}
    with pytest.raises(ValueError, match="drawn/test has 2,000 relevant documents among 2,000"):
        calibrate(composed(ranker_and_data, there, "method=isotonic", test=test))
    assert {file.name: file.read_bytes() for file in there.iterdir()} == before


@pytest.mark.processes
@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_complete_file_or_none(ranker_and_data, tmp_path):
    folder, data = ranker_and_data
    config = OmegaConf.create({"data": data})
    (tmp_path / "drawn.yaml").write_text(OmegaConf.to_yaml(config.data))
    program = (
        "from omegaconf import OmegaConf\n"
        "from in_process import configured\n"
        "from backpack_rank.pipelines.calibrate import calibrate\n"
        f"config = configured('calibrate', 'checkpoint={folder}', 'output={tmp_path}/out')\n"
        "OmegaConf.set_struct(config, False)\n"
        f"config.data = OmegaConf.load('{tmp_path}/drawn.yaml')\n"
        "print('begun', flush=True)\n"
        "calibrate(config)\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "shared")])
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"begun\n"
    table = tmp_path / "out" / "calibration.md"
    while not table.exists():  # the first file that it writes
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert table.read_text().count("| alpha=") == 5
    written = tmp_path / "out" / "calibration.json"  # the last one
    if written.exists():
        assert Calibration.read(written).method == "platt"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["method=spline"], "method=spline"),
        (["alphas=[]"], "alphas"),
        (["alphas=[-1]"], "alpha=-1"),
        (["relevant=3"], "has 0 relevant documents among 2,000 judged candidates"),
        (["bins=0"], "bins=0"),
        (["unjudged=all"], "unjudged=all"),
        (["policy=lowest_senses"], "has no sense vectors"),
    ],
)
def test_wrong_options_are_named(ranker_and_data, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        calibrate(composed(ranker_and_data, tmp_path, *options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_is_missing_is_named(ranker_and_data, tmp_path, capsys):
    folder, _ = ranker_and_data
    with pytest.raises(ValueError, match="data=drawn has no dev split"):
        calibrate(composed(ranker_and_data, tmp_path, dev=None))
    with pytest.raises(ValueError, match=r"does not say what it was trained on.*add data="):
        calibrate(configured("calibrate", f"checkpoint={folder}", f"output={tmp_path}"))
    with pytest.raises(ValueError, match=r"http://localhost:1 is no folder of yours: give output="):
        calibrate(configured("calibrate", "checkpoint=http://localhost:1", "data=synthetic"))
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="this is a file; give a folder"):
        calibrate(composed(ranker_and_data, tmp_path / "file"))
    with pytest.raises(UsageError, match="takes no -m: give several alphas"):
        cli.main(["calibrate", "-m", "alphas=[1]"])
    with pytest.raises(SystemExit, match="2"):
        cli.main(["calibrate", "nowhere", "data=synthetic"])
    assert "checkpoint=nowhere: neither a run's folder" in capsys.readouterr().err


@pytest.mark.slow
def test_without_scikit_learn_that_is_said_before_anything_is_scored(
    ranker_and_data, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r"needs scikit-learn: pip install '\.\[calibrate\]'"):
        calibrate(composed(ranker_and_data, tmp_path))
    # What was fitted elsewhere needs none.
    assert IsotonicMap([0.0, 1.0], [0.0, 1.0])(np.array([0.5])) == 0.5


@pytest.mark.slow
def test_documents_without_judgements_count_where_only_relevant_ones_are_listed(
    ranker_and_data, calibrated, tmp_path
):
    """As of MS MARCO, whose judgements name relevant passages alone."""
    _, data = ranker_and_data
    splits = {}
    for split in ("dev", "test"):
        listed = {
            query: {document: grade for document, grade in judged.items() if grade}
            for query, judged in data[split]["qrels"].items()
        }
        splits[split] = {**data[split], "qrels": listed}
    listed = tmp_path / "listed"
    calibrate(composed(ranker_and_data, listed, "alphas=[1,0]", **splits))
    assert "unjudged ones counted as not relevant" in (listed / "calibration.md").read_text()
    judged, _ = calibrated("platt")
    counted = (listed / "calibration.csv").read_text()
    assert counted == (judged / "calibration.csv").read_text()
    with pytest.raises(ValueError, match="a calibration needs both kinds"):
        calibrate(composed(ranker_and_data, tmp_path, "unjudged=left_out", **splits))
