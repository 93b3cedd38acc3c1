"""Teachers of train.py: runs and rankers, what is scored, when it is scored again, and wrong
options.
"""

from __future__ import annotations

import itertools
import logging
import math
import os

import numpy as np
import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import configured
from omegaconf.errors import MissingMandatoryValue
from read_back import csv_rows
from scipy.stats import kendalltau
from small_training import ONE_LAYER, in_document_order, job_collection, quiet_trainer

from backpack_rank.data.batching import Pairs
from backpack_rank.data.datamodule import ListBatch, RankingData
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.teacher_scores import TeacherRun
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.data.trec import read_run, write_run
from backpack_rank.models.factory import new_backpack
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.pipelines.train import train
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.training.losses import LOSSES, RankingLoss, listwise_kl, margin_mse
from backpack_rank.training.module import OptimizerConfig, RankingModule
from backpack_rank.training.teachers import (
    Distillation,
    NoTeacher,
    RankerTeacher,
    RunTeacher,
    StudentData,
    prepare_teacher,
)

CANDIDATES = {
    "q1": {"d3": 3.0, "d0": 2.0, "d2": 1.0, "d5": 0.5},
    "q2": {"d1": 1.0, "d6": 0.5},
    "q3": {"d6": 2.0, "empty": 1.0},
}
SMALL = [*ONE_LAYER, "training.epochs=2", "training.lists_per_batch=1"]


def made(*options: str):
    """The teacher that the options ask for."""
    return instantiate(configured("train", *options).teacher, _convert_="all")


@pytest.fixture
def student_data(tiny_collection, tmp_path):
    lists = TrainingLists(tiny_collection, CANDIDATES, size=3, max_relevant=1, seed=2)
    return StudentData(tiny_collection, CANDIDATES, lists, 2, tmp_path / "run", "cpu")


@pytest.fixture
def saved_folder(make_backpack, pair_tokenizer, tmp_path):
    """Folder of a saved ranker."""
    save_ranker(tmp_path / "saved", make_backpack(seed=3), pair_tokenizer)
    return tmp_path / "saved"


@pytest.fixture
def pairs_scored(monkeypatch):
    """Counts of the pairs scored, one for every time a scorer is asked for a run's worth of scores."""
    counts, unwatched = [], Scorer.scores
    monkeypatch.setattr(
        Scorer, "scores", lambda self, pairs: (counts.append(len(pairs)), unwatched(self, pairs))[1]
    )
    return counts


def test_a_ranker_scores_relevant_documents_and_candidates_once(
    student_data, saved_folder, pairs_scored
):
    source = RankerTeacher(checkpoint=str(saved_folder))
    run = source.run(student_data)
    assert {query_id: set(scores) for query_id, scores in run.items()} == {
        "q1": {"d0", "d1", "d2", "d3", "d5"},
        "q2": {"d1", "d4", "d5", "d6"},
        "q3": {"d6", "empty"},
    }
    ranker, pair_tokenizer = load_ranker(saved_folder)
    texts = student_data.collection.documents.get_many(run["q1"])
    expected = Scorer(ranker, pair_tokenizer).score(
        student_data.collection.queries["q1"], list(texts.values())
    )
    assert list(run["q1"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert read_run(student_data.folder / "teacher.trec") == run
    assert source.run(student_data) == run
    assert pairs_scored == [11]


def test_the_scores_are_those_of_weights_texts_and_pairs(
    student_data, saved_folder, pairs_scored, make_backpack, pair_tokenizer, tiny_collection, caplog
):
    source = RankerTeacher(checkpoint=str(saved_folder))
    before = source.run(student_data)
    # A ranker with other weights in the same folder.
    save_ranker(saved_folder, make_backpack(seed=4), pair_tokenizer)
    with caplog.at_level(logging.WARNING):
        after = source.run(student_data)
    assert "is of another ranker or other texts; scoring again" in caplog.text
    assert before != after
    # Another text of a query.
    tiny_collection.queries["q3"] = "bread for guests"
    assert source.run(student_data)["q3"] != after["q3"]
    assert pairs_scored == [11, 11, 11]
    source.run(student_data)
    assert len(pairs_scored) == 3


def test_a_limit_scores_what_the_lists_draw(student_data, saved_folder, pairs_scored):
    source = RankerTeacher(checkpoint=str(saved_folder), candidates_per_query=1)
    run = source.run(student_data)
    drawn = {}
    for epoch in range(2):
        for item in student_data.lists.epoch(epoch):
            drawn.setdefault(item.query_id, []).extend(item.doc_ids)
    for query_id, scores in run.items():
        relevant = {
            doc_id for doc_id, label in student_data.collection.qrels[query_id].items() if label > 0
        }
        others = [d for d in drawn[query_id] if d not in relevant and d in CANDIDATES[query_id]]
        assert set(scores) == ({*drawn[query_id]} & relevant) | {others[0]}
    assert pairs_scored[0] < 11


def test_the_teacher_is_used_by_the_lists_and_draws_no_random_number(student_data, saved_folder):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    source = RankerTeacher(
        checkpoint=str(saved_folder), loss="listwise_kl", weight=2.0, temperature=3.0
    )
    teacher, (term,) = prepare_teacher(source, student_data)
    assert torch.equal(torch.rand(3), expected)
    known = read_run(student_data.folder / "teacher.trec")
    scores = teacher.scores("q2", ["d4", "d3", "d1"])
    assert scores[[0, 2]].tolist() == pytest.approx([known["q2"]["d4"], known["q2"]["d1"]])
    assert torch.isnan(torch.from_numpy(scores))[1]
    assert (term.kind, term.weight, term.temperature) == ("listwise_kl", 2.0, 3.0)


def test_without_a_teacher_nothing_is_added(student_data):
    assert isinstance(made(), NoTeacher)
    assert prepare_teacher(NoTeacher(), student_data) == (None, ())


def test_runs_of_a_teacher_are_counted(student_data, tmp_path, caplog):
    path = tmp_path / "scores.trec"
    write_run(path, {"q1": {"d0": 1.0, "d3": 0.5}, "q9": {"d0": 1.0}}, "t")
    with caplog.at_level(logging.INFO):
        teacher, (term,) = prepare_teacher(RunTeacher(files=str(path)), student_data)
    assert "2 of 11 training pairs" in caplog.text
    assert teacher.scores("q1", ["d3", "d0"]).tolist() == [0.5, 1.0]
    assert term.kind == "margin_mse"


@pytest.mark.parametrize(
    ("run", "loss", "message"),
    [
        (
            {"q9": {"d0": 1.0}},
            "margin_mse",
            "none of the 11 training pairs of tiny has a teacher's score",
        ),
        (
            {"q1": {"d0": 1.0, "d1": 1.0}},
            "margin_mse",
            "score for a relevant and for another document",
        ),
        ({"q1": {"d0": 1.0}, "q2": {"d1": 2.0}}, "listwise_kl", "score for two documents"),
    ],
)
def test_a_teacher_of_no_use_is_an_error(student_data, tmp_path, run, loss, message):
    path = tmp_path / "scores.trec"
    write_run(path, run, "t")
    with pytest.raises(ValueError, match=message):
        prepare_teacher(RunTeacher(files=[str(path)], loss=loss), student_data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["teacher=run", "teacher.files=[]"], "teacher.files=[] must be a path"),
        (
            ["teacher=run", "teacher.files=[/nowhere/a.trec]"],
            "teacher.files: there is no file /nowhere/a.trec",
        ),
        (["teacher=run"], "teacher.files"),
        (["teacher=ranker"], "teacher.checkpoint"),
        (
            ["teacher=ranker", "teacher.checkpoint=/nowhere"],
            "teacher.checkpoint=/nowhere: neither a run's folder",
        ),
        (
            ["teacher=ranker", "teacher.checkpoint=SAVED", "teacher.loss=mse"],
            "teacher.loss=mse: use one of margin_mse",
        ),
        (
            ["teacher=ranker", "teacher.checkpoint=SAVED", "teacher.dtype=int4"],
            "teacher.dtype=int4: use one of float32",
        ),
        (
            ["teacher=ranker", "teacher.checkpoint=SAVED", "teacher.candidates_per_query=0"],
            "teacher.candidates_per_query=0 must be a whole number of at least 1",
        ),
        (["training.loss=hinge"], "training.loss=hinge: use one of listwise_softmax"),
    ],
)
def test_wrong_options_are_refused_before_any_data_is_read(
    saved_folder, tmp_path, options, message
):
    options = [option.replace("SAVED", str(saved_folder)) for option in options]
    wrong = (
        ValueError,
        FileNotFoundError,
        InstantiationException,
        MissingMandatoryValue,
    )  # Hydra wraps what a constructor raises
    with pytest.raises(wrong) as error:
        train(configured("train", *options, "data.train=null"), tmp_path / "run", [])
    assert message in str(error.value.__cause__ or error.value)


@pytest.mark.slow
def test_train_with_a_ranker_as_teacher_and_resume_without_scoring_again(
    saved_folder, pairs_scored, tmp_path, monkeypatch
):
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    steps, unwatched = [], LOSSES["lambdarank"]
    monkeypatch.setitem(
        LOSSES, "lambdarank", lambda *lists: (steps.append(1), unwatched(*lists))[1]
    )
    folder = tmp_path / "student"
    options = [
        *SMALL,
        "teacher=ranker",
        f"teacher.checkpoint={saved_folder}",
        "teacher.loss=listwise_kl",
        "training.loss=lambdarank",
    ]
    train(configured("train", *options), folder, options)
    assert len(pairs_scored) == 1
    assert len(steps) == 12
    logged = csv_rows(folder / "logs" / "metrics.csv")  # written every ten steps
    assert any(float(row["train/distillation"] or 0) > 0 for row in logged)
    written = os.stat(folder / "teacher.trec").st_mtime_ns
    train(configured("train", *SMALL, f"resume={folder}"), folder, [])
    assert len(pairs_scored) == 1
    assert os.stat(folder / "teacher.trec").st_mtime_ns == written
    load_ranker(folder / "ranker")


def test_every_option_of_the_group_is_taken(saved_folder, tmp_path):
    path = tmp_path / "scores.trec"
    write_run(path, {"q1": {"d0": 1.0}}, "t")
    common = {"loss": "listwise_kl", "weight": 0.5, "temperature": 2.0}
    chosen = [f"teacher.{key}={value}" for key, value in common.items()]
    by_run = made("teacher=run", f"teacher.files={path}", *chosen)
    assert options_of(by_run) == options_of(RunTeacher(files=str(path), **common))
    special = {
        "candidates_per_query": 7,
        "dtype": "bfloat16",
        "tokens_per_batch": 900,
        "workers": 2,
    }
    chosen += [f"teacher.{key}={value}" for key, value in special.items()]
    by_ranker = made("teacher=ranker", f"teacher.checkpoint={saved_folder}", *chosen)
    expected = RankerTeacher(checkpoint=str(saved_folder), **common, **special)
    assert options_of(by_ranker) == options_of(expected)


def options_of(source: RunTeacher | RankerTeacher) -> dict[str, object]:
    return {**vars(source), "term": vars(source.term)}


NAN = math.nan


def tensors(*rows):
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def all_there(rows):
    return torch.ones(len(rows), len(rows[0]), dtype=torch.bool)


def lists(seed, shape=(3, 5)):
    """Random scores of student and teacher (some nan), labels and masks."""
    generator = torch.Generator().manual_seed(seed)
    scores, teacher = (
        torch.randn(shape, generator=generator, dtype=torch.float64) * 3 for _ in range(2)
    )
    teacher = teacher.masked_fill(torch.rand(shape, generator=generator) < 0.2, NAN)
    labels = torch.randint(0, 3, shape, generator=generator)
    return scores, teacher, labels, torch.rand(shape, generator=generator) < 0.8


def known_places(teacher, mask):
    return [place for place, there in enumerate(mask) if there and not math.isnan(teacher[place])]


def mean(totals, rows):
    return sum(totals) / max(len(totals), 1), rows - len(totals)


def margin_mse_in_loops(scores, teacher, labels, mask):
    totals = []
    for s, t, y, m in zip(
        *(part.tolist() for part in (scores, teacher, labels, mask)), strict=True
    ):
        known = known_places(t, m)
        errors = []
        for i, j in itertools.product(known, repeat=2):
            if y[i] > 0 and y[j] == 0:
                errors.append(((s[i] - s[j]) - (t[i] - t[j])) ** 2)
        if errors:
            totals.append(sum(errors) / len(errors))
    return mean(totals, len(scores))


def softmax(logits):
    exponentials = [math.exp(logit) for logit in logits]
    return [value / sum(exponentials) for value in exponentials]


def listwise_kl_in_loops(scores, teacher, mask, temperature):
    totals = []
    for s, t, m in zip(scores.tolist(), teacher.tolist(), mask.tolist(), strict=True):
        known = known_places(t, m)
        if len(known) < 2:
            continue
        p = softmax([t[place] / temperature for place in known])
        q = softmax([s[place] / temperature for place in known])
        totals.append(temperature**2 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    return mean(totals, len(scores))


def test_margin_mse_by_hand():
    scores, teacher, labels = tensors([[1.0, 0.5, 2.0]], [[10.0, 7.0, 9.0]], [[1, 0, 0]])
    # Margins of the student .5 and -1, of the teacher 3 and 1.
    assert margin_mse(scores, teacher, labels, all_there(scores)) == (
        pytest.approx((2.5**2 + 2**2) / 2),
        0,
    )


def test_margins_are_between_relevant_and_other_documents_alone():
    scores, teacher, labels = tensors([[1.0, 5.0, 0.0]], [[0.0, 0.0, 0.0]], [[2, 1, 0]])
    assert margin_mse(scores, teacher, labels, all_there(scores))[0].item() == pytest.approx(
        (1 + 25) / 2
    )


def test_listwise_kl_by_hand():
    scores, teacher = tensors([[0.0, 0.0]], [[math.log(3), 0.0]])
    expected = 3 / 4 * math.log((3 / 4) / (1 / 2)) + 1 / 4 * math.log((1 / 4) / (1 / 2))
    assert listwise_kl(scores, teacher, all_there(scores))[0].item() == pytest.approx(expected)
    # At temperature 2 twice these logits give the same distributions; the square of 2 is the
    # factor.
    assert listwise_kl(2 * scores, 2 * teacher, all_there(scores), 2.0)[0].item() == pytest.approx(
        4 * expected
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 7), st.floats(0.5, 5))
def test_losses_are_those_of_loops(seed, rows, size, temperature):
    scores, teacher, labels, mask = lists(seed, (rows, size))
    for actual, expected in (
        (
            margin_mse(scores, teacher, labels, mask),
            margin_mse_in_loops(scores, teacher, labels, mask),
        ),
        (
            listwise_kl(scores, teacher, mask, temperature),
            listwise_kl_in_loops(scores, teacher, mask, temperature),
        ),
    ):
        assert (actual[0].item(), actual[1]) == (
            pytest.approx(expected[0], rel=1e-9, abs=1e-9),
            expected[1],
        )


def loss_of(kind, scores, teacher, labels, mask):
    if kind == "margin_mse":
        return margin_mse(scores, teacher, labels, mask)[0]
    return listwise_kl(scores, teacher, mask, 2.0)[0]


@pytest.mark.parametrize("kind", ["margin_mse", "listwise_kl"])
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(-50, 50), st.floats(-50, 50))
def test_constants_added_to_either_ones_scores_change_nothing(kind, seed, to_ranker, to_teacher):
    scores, teacher, labels, mask = lists(seed)
    plain = loss_of(kind, scores, teacher, labels, mask)
    shifted = loss_of(kind, scores + to_ranker, teacher + to_teacher, labels, mask)
    torch.testing.assert_close(shifted, plain, rtol=1e-7, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(-50, 50))
def test_a_student_equal_to_the_teacher_up_to_a_constant_has_no_loss(seed, constant):
    scores, teacher, labels, mask = lists(seed)
    scores = torch.where(teacher.isnan(), scores, teacher + constant)
    assert margin_mse(scores, teacher, labels, mask)[0].item() == pytest.approx(0, abs=1e-9)
    assert listwise_kl(scores, teacher, mask, 0.7)[0].item() == pytest.approx(0, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_divergence_is_never_below_zero(seed):
    scores, teacher, _, mask = lists(seed)
    assert listwise_kl(scores, teacher, mask)[0].item() >= -1e-12


@pytest.mark.parametrize("held", [9.0, math.inf, -math.inf, NAN])
@pytest.mark.parametrize("kind", ["margin_mse", "listwise_kl"])
def test_masked_documents_and_those_without_a_teachers_score_never_matter(kind, held):
    scores, teacher, labels = tensors([[0.3, -1.0, 0.8]], [[2.0, -1.0, 1.0]], [[1, 0, 0]])
    plain = scores.clone().requires_grad_()
    loss_of(kind, plain, teacher, labels, all_there(scores)).backward()
    # The second document is masked, the fourth has no teacher's score.
    padded, teacher, labels = tensors(
        [[0.3, held, -1.0, 5.0, 0.8]], [[2.0, 7.0, -1.0, NAN, 1.0]], [[1, 1, 0, 1, 0]]
    )  # fmt: skip
    mask = torch.tensor([[True, False, True, True, True]])
    padded.requires_grad_()
    loss_of(kind, padded, teacher, labels, mask).backward()
    torch.testing.assert_close(padded.grad[0, [0, 2, 4]], plain.grad[0])
    assert padded.grad[0, [1, 3]].tolist() == [0.0, 0.0]
    assert plain.grad.abs().min() > 0


def test_lists_that_say_nothing_are_left_out_and_counted():
    scores, teacher, labels = tensors(
        [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [3.0, 0.0]],
        [[NAN, 1.0], [NAN, NAN], [2.0, 1.0], [3.5, 1.0]],
        [[1, 0], [1, 0], [1, 1], [1, 0]],
    )
    assert margin_mse(scores, teacher, labels, all_there(scores)) == (pytest.approx(0.25), 3)
    alone = listwise_kl(scores[2:], teacher[2:], all_there(scores)[2:])[0].item()
    assert listwise_kl(scores, teacher, all_there(scores)) == (pytest.approx(alone), 2)
    ranker_scores = scores[:2].clone().requires_grad_()
    for loss, skipped in (
        margin_mse(ranker_scores, teacher[:2], labels[:2], all_there(ranker_scores)),
        listwise_kl(ranker_scores, teacher[:2], all_there(ranker_scores)),
    ):
        (gradient,) = torch.autograd.grad(loss, ranker_scores)
        assert (loss.item(), skipped, gradient.abs().max().item()) == (0.0, 2, 0.0)


def test_gradients_are_those_worked_by_hand():
    scores, teacher, labels = tensors([[0.0, 1.0, 0.5]], [[2.0, 0.0, -1.0]], [[1, 0, 0]])
    scores.requires_grad_()
    # Errors of the margins: -1 - 2 and -0.5 - 3, each twice over two pairs.
    (gradient,) = torch.autograd.grad(
        margin_mse(scores, teacher, labels, all_there(scores))[0], scores
    )
    assert gradient[0].tolist() == pytest.approx([-3 - 3.5, 3.0, 3.5])
    # Of the divergence: T (q - p).
    (gradient,) = torch.autograd.grad(
        listwise_kl(scores, teacher, all_there(scores), 2.0)[0], scores
    )
    expected = 2.0 * ((scores / 2).softmax(-1) - (teacher / 2).softmax(-1))
    torch.testing.assert_close(gradient, expected.detach())
    random, teacher, labels, mask = lists(3)
    random.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: margin_mse(s, teacher, labels, mask)[0], random)
    assert torch.autograd.gradcheck(lambda s: listwise_kl(s, teacher, mask, 1.5)[0], random)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "mse"}, r"teacher\.loss=mse: use one of margin_mse, listwise_kl"),
        ({"weight": 0.0}, r"teacher\.weight=0\.0 .*teacher=none"),
        ({"temperature": -1.0}, r"teacher\.temperature=-1\.0"),
        ({"temperature": NAN}, r"teacher\.temperature=nan"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Distillation(**options)


def test_the_term_is_its_loss_of_the_batchs_scores_with_its_own_temperature():
    scores, teacher, labels, mask = lists(6)
    batch = ListBatch(PackedBatch.from_sequences([np.array([1])]), labels, mask, teacher)
    losses = {
        (kind, temperature): Distillation(kind, temperature=temperature)
        .loss(None, batch, None, scores)
        .item()
        for kind in ("margin_mse", "listwise_kl")
        for temperature in (1.0, 4.0)
    }
    assert (
        losses["margin_mse", 1.0]
        == losses["margin_mse", 4.0]
        == margin_mse(scores, teacher, labels, mask)[0].item()
    )
    assert losses["listwise_kl", 1.0] == listwise_kl(scores, teacher, mask)[0].item()
    assert (
        losses["listwise_kl", 4.0]
        == listwise_kl(scores, teacher, mask, 4.0)[0].item()
        != losses["listwise_kl", 1.0]
    )


@pytest.fixture(scope="module")
def jobs():
    return job_collection(second_grade=1)


@pytest.fixture(scope="module")
def teacher_run(jobs, make_backpack, pair_tokenizer):
    """A teacher's scores of all pairs: a ranker with large random weights, whose order no label
    tells.
    """
    reranker = PointwiseReranker(Scorer(make_backpack(seed=5), pair_tokenizer))
    return reranker.rerank(in_document_order(jobs), jobs)


def agreement(ranker, pair_tokenizer, jobs, run):
    """Mean Kendall's tau with the teacher over the queries."""
    reranked = PointwiseReranker(Scorer(ranker, pair_tokenizer)).rerank(run, jobs)
    taus = []
    for query_id, teacher_scores in run.items():
        scores = [reranked[query_id][doc_id] for doc_id in teacher_scores]
        taus.append(kendalltau(list(teacher_scores.values()), scores)[0])
    return float(np.mean(taus))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_a_student_learns_the_order_of_its_teacher(
    tokenizer, pair_tokenizer, jobs, teacher_run, tmp_path
):
    def student(terms, weight=1.0):
        torch.manual_seed(0)
        shape = {"layers": 1, "hidden_size": 32, "heads": 4, "positions": 64, "dropout": 0.0}
        ranker = new_backpack(tokenizer, **shape, initializer_range=0.1)
        pairs = Pairs.from_run(teacher_run, jobs)
        lists = TrainingLists(jobs, teacher_run, size=16)
        data = RankingData(
            lists,
            jobs,
            pairs,
            pair_tokenizer,
            lists_per_batch=2,
            teacher=TeacherRun(teacher_run) if terms else None,
        )
        module = RankingModule(
            ranker, OptimizerConfig(5e-3), pairs, 0, terms, RankingLoss(weight=weight)
        )
        trainer = quiet_trainer(tmp_path, max_epochs=12, limit_val_batches=0)
        trainer.fit(module, data)
        return agreement(module.ranker, pair_tokenizer, jobs, teacher_run), trainer.callback_metrics

    alone, _ = student(())
    divergence, logged = student([Distillation("listwise_kl")], weight=0.0)
    both, _ = student([Distillation("margin_mse", weight=3.0)])
    assert 0 < logged["train/distillation"].item() == pytest.approx(logged["train/loss"].item())
    # Measured with seeds 0 and 1: .24 without a teacher, .78 and .79, .64 and .71.
    assert alone < 0.4
    assert divergence > 0.6
    assert both > 0.5


def test_a_term_needs_a_teacher_and_a_loss_needs_something_to_train_on(
    make_backpack, pair_tokenizer, jobs, teacher_run
):
    pairs = Pairs.from_run(teacher_run, jobs)
    data = RankingData(TrainingLists(jobs, teacher_run, size=4), jobs, pairs, pair_tokenizer)
    (batch,) = data.train_dataloader()
    module = RankingModule(make_backpack(), OptimizerConfig(), pairs, terms=[Distillation()])
    with pytest.raises(ValueError, match="give RankingData a teacher"):
        module.training_step(batch, 0)
    with pytest.raises(ValueError, match=r"training\.loss_weight=0"):
        RankingModule(
            make_backpack(), OptimizerConfig(), pairs, ranking_loss=RankingLoss(weight=0.0)
        )
