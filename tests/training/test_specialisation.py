"""Sense specialisation as a whole: what it refuses, which senses it takes, and that it works in a training run."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from backpack_rank.attributes.lexicon import load_pairs
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.evaluation.score_gaps import score_spread
from backpack_rank.models.factory import (
    backpack_on_backbone,
    load_ranker,
    make_pair_tokenizer,
    new_backpack,
    save_ranker,
)
from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.policies import SpecialisedSenses
from backpack_rank.senses.sensitivity import sensitivity
from backpack_rank.senses.specialised import Specialised, specialised_senses
from backpack_rank.training.losses import RankingLoss
from backpack_rank.training.module import OptimizerConfig, RankingModule
from backpack_rank.training.specialisation import NoSpecialisation, Specialisation, project_into_senses

CONF = Path(__file__).resolve().parents[2] / "conf"
GENDER = OmegaConf.to_container(OmegaConf.load(CONF / "attribute" / "gender.yaml"))
JOBS = ("doctor", "nurse", "engineer", "cook", "carpenter", "bridge", "soup", "hospital")
LOSS = RankingLoss()


def options(**given):
    """With the narrow word classes, which are quicker to read."""
    return Specialisation(**{"attribute": GENDER, "wide": False, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tied": -1.0}, r"specialise\.tied=-1\.0"),
        ({"kept": float("nan")}, r"specialise\.kept=nan"),
        ({"tied": 0, "counterfactual": 0}, r"specialise\.tied=0 and specialise\.counterfactual=0"),
        ({"senses": 0}, r"specialise\.senses=0: at least one"),
        ({"senses": True}, r"specialise\.senses=True"),
        ({"senses": []}, r"specialise\.senses=\[\]"),
        ({"senses": [2, 2]}, r"specialise\.senses=\[2, 2\]: .*each once"),
        ({"counterfactuals": 0}, r"specialise\.counterfactuals=0"),
    ],
)
def test_impossible_options_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        options(**given)


@pytest.mark.parametrize(
    ("senses", "message"),
    [(8, "all 8 senses"), ([0, 8], "senses 0 to 7, not 8"), ([-1], "not -1"), (9, "not 8"), (list(range(8)), "all 8")],
)
def test_senses_that_the_ranker_has_not_and_all_of_them_are_refused(make_backpack, pair_tokenizer, senses, message):
    ranker = make_backpack()
    with pytest.raises(ValueError, match=rf"specialise\.senses=.*{message}"):
        options(senses=senses).apply(ranker, pair_tokenizer, LOSS)
    assert specialised_senses(ranker.config) is None


def test_a_ranker_without_senses_is_refused(make_gpt2, pair_tokenizer):
    with pytest.raises(TypeError, match=r"GPT2ForRanking has no sense vectors.*specialise=none"):
        options().apply(make_gpt2(), pair_tokenizer, LOSS)


def test_a_tokenizer_without_the_words_is_refused(sentences):
    tokenizer = train_bpe([sentence.replace("e", "3").replace("i", "1") for sentence in sentences], vocab_size=300)
    ranker = new_backpack(tokenizer, layers=1, hidden_size=16, heads=2, senses=4, positions=64)
    with pytest.raises(ValueError, match="no two words of a class as single tokens"):
        options(senses=[1]).apply(ranker, PairTokenizer(tokenizer, 48), LOSS)


def test_a_count_takes_the_most_sensitive_senses_and_a_list_itself(make_backpack, pair_tokenizer, tokenizer):
    ranker = make_backpack()
    values = sensitivity(ranker.backpack, tokenizer, load_pairs("gender_pairs").pairs).values
    options(senses=3).apply(ranker, pair_tokenizer, LOSS)
    assert specialised_senses(ranker.config) == Specialised("gender", tuple(sorted(values.argsort()[:3].tolist())))
    options(senses=[7, 2]).apply(ranker, pair_tokenizer, LOSS)
    assert specialised_senses(ranker.config) == Specialised("gender", (2, 7))


def test_a_weight_of_zero_leaves_a_term_out(make_backpack, pair_tokenizer, tmp_path):
    ranker = make_backpack()
    names = [term.name for term in options(tied=3.0).apply(ranker, pair_tokenizer, LOSS)]
    assert names == ["tied", "counterfactual", "content", "any_alpha"]
    save_ranker(tmp_path / "plain", make_backpack(seed=4), pair_tokenizer)
    every = options(reference=str(tmp_path / "plain"), kept=2.0)
    assert [term.name for term in every.apply(ranker, pair_tokenizer, LOSS)] == [*names[:3], "kept", "any_alpha"]
    for left_out in ("tied", "counterfactual", "content", "kept", "any_alpha"):
        terms = replace(every, **{left_out: 0.0}).apply(ranker, pair_tokenizer, LOSS)
        assert left_out not in [term.name for term in terms]
        assert len(terms) == 4
    assert options(tied=3.0).apply(ranker, pair_tokenizer, LOSS)[0].weight == 3.0


def test_senses_start_with_the_attribute_in_the_chosen_ones(make_backpack, pair_tokenizer):
    """Before a step of training, the other senses tell no class of one-token words apart."""
    for moved in (True, False):
        ranker = make_backpack()
        tied = options(senses=[2, 5], moved=moved).apply(ranker, pair_tokenizer, LOSS)[0]
        with torch.no_grad():
            value = tied.loss(ranker, None, None, torch.zeros(1)).item()
        assert (value < 1e-9) is moved


def test_wide_classes_hold_more_words(make_backpack, pair_tokenizer, caplog):
    with caplog.at_level("INFO"):
        for wide in (False, True):
            attribute = {**GENDER, "classes": ["age_classes"], "wide_classes": ["gender_classes"]}
            given = options(attribute=attribute if wide else GENDER, wide=wide, senses=[1])
            given.apply(make_backpack(), pair_tokenizer, LOSS)
    counts = [int(record.args[0]) for record in caplog.records if "classes" in record.message]
    assert counts[0] == counts[1] > 3


def test_counterfactuals_swap_the_attributes_words_and_leave_names_alone():
    swap = pickle.loads(pickle.dumps(options().swap))  # data loader workers get a copy
    assert swap("He met Mary and his aunt, Ms Smith.") == "She met Mary and her uncle, Mr Smith."
    assert options(counterfactual=0, content=0).swap is None
    assert options(counterfactual=0, content=0, reference="somewhere").swap is not None


def test_a_reference_reads_the_same_tokens(make_backpack, pair_tokenizer, sentences, tmp_path):
    other = train_bpe(sentences, vocab_size=400)
    reference = new_backpack(other, layers=1, hidden_size=16, heads=2, senses=4, positions=64)
    save_ranker(tmp_path / "other", reference, PairTokenizer(other, 48))
    with pytest.raises(ValueError, match=r"specialise\.reference=.*another tokenizer"):
        options(reference=str(tmp_path / "other")).apply(make_backpack(), pair_tokenizer, LOSS)
    with pytest.raises(FileNotFoundError, match="nothing"):
        options(reference=str(tmp_path / "nothing")).apply(make_backpack(), pair_tokenizer, LOSS)


def test_training_without_it_takes_the_mark_off_again(make_backpack, make_gpt2, pair_tokenizer, tmp_path, caplog):
    ranker = make_backpack()
    assert NoSpecialisation().apply(ranker, pair_tokenizer, LOSS) == ()
    assert not caplog.records
    Specialised("gender", (1,)).write(ranker.config)
    NoSpecialisation().apply(ranker, pair_tokenizer, LOSS)
    assert "specialised for gender in senses [1]" in caplog.text
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    assert specialised_senses(load_ranker(tmp_path / "ranker")[0].config) is None
    NoSpecialisation().apply(make_gpt2(), pair_tokenizer, LOSS)


@pytest.fixture(scope="module")
def jobs():
    """Documents with the query's job word; those that say "he" are judged better, so gender is of use."""
    documents, qrels = {}, {}
    for number, job in enumerate(JOBS):
        for place, (he, his) in enumerate((("he", "his"), ("she", "her"), ("He", "his"), ("She", "her"))):
            start = f"{he} is a {job}" if he[0].isupper() else f"The {job} said {he} was"
            documents[f"d{number}{place}"] = f"{start} near {his} house."
        qrels[f"q{number}"] = {f"d{number}{place}": 2 - 2 * (place % 2) + 1 for place in range(4)}
    return Collection("jobs", MemoryStore(documents), {f"q{n}": f"a {job}" for n, job in enumerate(JOBS)}, qrels)


@pytest.fixture(scope="module")
def candidates(jobs):
    ids = [doc_id for doc_id, _ in jobs.documents]
    return {query_id: {doc_id: -float(rank) for rank, doc_id in enumerate(ids)} for query_id in jobs.queries}


def gap(ranker, pair_tokenizer, jobs, candidates, alpha):
    """Mean |score of a text - score of its counterfactual| with S at alpha, by the spread of the scores."""
    swap = options().swap
    documents = {doc_id: swap(text) for doc_id, text in jobs.documents}
    swapped = replace(jobs, documents=MemoryStore(documents))
    reranker = PointwiseReranker(Scorer(ranker, pair_tokenizer)).with_policy(SpecialisedSenses("gender"), alpha)
    own, other = (reranker.rerank(candidates, part) for part in (jobs, swapped))
    gaps = [abs(score - other[query_id][doc_id]) for query_id, run in own.items() for doc_id, score in run.items()]
    return float(np.mean(gaps)) / score_spread(own)


def trained(ranker, pair_tokenizer, jobs, candidates, given, steps=40):
    """A ranker after some steps on one batch of all lists."""
    torch.manual_seed(0)
    terms = given.apply(ranker, pair_tokenizer, LOSS) if given is not None else ()
    module = RankingModule(ranker.train(), OptimizerConfig(3e-3), Pairs.from_run(candidates, jobs), terms=terms)
    module.log = lambda *args, **options: None
    lists = TrainingLists(jobs, candidates, size=8, max_relevant=4)
    data = RankingData(lists, jobs, module.dev, pair_tokenizer, lists_per_batch=8, swap=given.swap if given else None)
    (batch,) = data.train_dataloader()
    optimizer = module.optimisation.optimizer(ranker)
    for step in range(steps):
        optimizer.zero_grad()
        loss = module.training_step(batch, step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ranker.parameters(), 1.0)
        optimizer.step()
    return ranker.eval()


def start(tokenizer):
    torch.manual_seed(3)
    size = {"layers": 1, "hidden_size": 32, "heads": 4, "senses": 8, "positions": 64}
    return new_backpack(tokenizer, **size, dropout=0.1, initializer_range=0.1)


def test_gender_ends_up_in_the_chosen_senses(tokenizer, pair_tokenizer, jobs, candidates):
    """The dial on S takes the gap away; on a ranker trained without it, the same senses do nothing of the kind."""
    senses = [2, 5]
    plain = trained(start(tokenizer), pair_tokenizer, jobs, candidates, None)
    ranker = trained(start(tokenizer), pair_tokenizer, jobs, candidates, options(senses=senses))
    gaps = {alpha: gap(ranker, pair_tokenizer, jobs, candidates, alpha) for alpha in (1.0, 0.5, 0.0)}
    Specialised("gender", tuple(senses)).write(plain.config)
    without = {alpha: gap(plain, pair_tokenizer, jobs, candidates, alpha) for alpha in (1.0, 0.0)}
    assert gaps[0.0] < 0.15 * gaps[1.0]
    assert gaps[0.0] < 0.15 * without[0.0]
    assert gaps[0.5] < 0.7 * gaps[1.0]
    assert without[0.0] > 0.5 * without[1.0]


def test_settled_and_merged_words_of_a_class_are_one_without_the_chosen_senses(
    tokenizer, pair_tokenizer, jobs, candidates
):
    given = options(senses=[2, 5], counterfactual=0.0)  # nothing else brings the scores together
    ranker = trained(start(tokenizer), pair_tokenizer, jobs, candidates, given, steps=10)
    texts = dict(jobs.documents)  # the tokenizer has no " He" and " She"
    candidates = {
        query_id: {doc_id: run[doc_id] for doc_id in run if texts[doc_id].startswith("The")}
        for query_id, run in candidates.items()
    }
    before = gap(ranker, pair_tokenizer, jobs, candidates, 0.0)
    given.finalise(ranker, pair_tokenizer)
    gaps = [gap(ranker, pair_tokenizer, jobs, candidates, alpha) for alpha in (0.0, 1.0)]
    assert gaps[0] < 1e-5 < before
    assert gaps[1] > 1e-2
    ranker.backpack.split_word_classes()
    assert gap(ranker, pair_tokenizer, jobs, candidates, 0.0) > 1e-3


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A small BERT as the hub would give it."""
    path = tmp_path_factory.mktemp("bert")
    common = ["he", "she", "his", "her", "is", "a", "near", "house", "the", "said", "was", "."]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *common, *JOBS]
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=40, **shape)).save_pretrained(path)
    vocabulary = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    vocabulary.normalizer = normalizers.Lowercase()
    vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special).save_pretrained(path)
    return path


def of_kind(kind, tokenizer, bert):
    if kind == "gpt2":
        ranker = start(tokenizer)
        return ranker, make_pair_tokenizer(tokenizer, ranker, 48)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(bert)
    torch.manual_seed(0)
    ranker = backpack_on_backbone(tokenizer, name=str(bert), senses=8)
    return ranker, make_pair_tokenizer(tokenizer, ranker, 32)


def fitted(folder, ranker, pair_tokenizer, jobs, candidates, given, checkpoint=None, **more):
    """Two epochs in Lightning, or what is left of them behind a checkpoint."""
    module = RankingModule(
        ranker, OptimizerConfig(3e-3), Pairs.from_run(candidates, jobs), 7, given.apply(ranker, pair_tokenizer, LOSS)
    )
    data = RankingData(
        TrainingLists(jobs, candidates, size=6, seed=7),
        jobs,
        module.dev,
        pair_tokenizer,
        lists_per_batch=4,
        swap=given.swap,
    )
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        callbacks=[ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        deterministic=True,
        **more,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=False if checkpoint else None)
    return trainer, ranker


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(tokenizer, pair_tokenizer, jobs, candidates, tmp_path):
    save_ranker(tmp_path / "plain", start(tokenizer), pair_tokenizer)
    given = options(senses=[2, 5], counterfactuals=3, reference=str(tmp_path / "plain"))
    trainer, whole = fitted(tmp_path / "whole", start(tokenizer), pair_tokenizer, jobs, candidates, given)
    terms = {f"train/{name}" for name in ("tied", "counterfactual", "content", "kept", "any_alpha")}
    assert terms <= set(trainer.callback_metrics)
    torch.manual_seed(99)
    half = tmp_path / "whole" / "epoch=0.ckpt"
    _, resumed = fitted(tmp_path / "resumed", start(tokenizer), pair_tokenizer, jobs, candidates, given, half)
    for (name, one), other in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_every_backpack_trains_with_it_in_bf16_too(kind, tokenizer, bert, jobs, candidates, tmp_path):
    ranker, pair_tokenizer = of_kind(kind, tokenizer, bert)
    before = copy.deepcopy(ranker.state_dict())
    trainer, _ = fitted(tmp_path, ranker, pair_tokenizer, jobs, candidates, options(), precision="bf16-mixed")
    assert all(torch.isfinite(value) for value in trainer.callback_metrics.values())
    assert trainer.callback_metrics["train/counterfactual"] > 0
    assert all(own.dtype == torch.float32 and torch.isfinite(own).all() for own in ranker.parameters())
    assert any(not torch.equal(value, before[name]) for name, value in ranker.state_dict().items())


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_no_parameter_is_used_by_the_terms_alone_or_left_out_for_them(kind, tokenizer, bert, jobs, candidates):
    """Several processes would wait for the gradient of a parameter that some batches do not use."""
    ranker, pair_tokenizer = of_kind(kind, tokenizer, bert)
    used = []
    for given in (None, options()):
        ranker.zero_grad()
        terms = () if given is None else given.apply(ranker, pair_tokenizer, LOSS)
        module = RankingModule(ranker, OptimizerConfig(3e-3), Pairs.from_run(candidates, jobs), terms=terms)
        module.log = lambda *args, **options: None
        lists = TrainingLists(jobs, candidates, size=6)
        data = RankingData(
            lists, jobs, module.dev, pair_tokenizer, lists_per_batch=4, swap=given.swap if given else None
        )
        module.training_step(next(iter(data.train_dataloader())), 0).backward()
        used.append({name for name, own in ranker.named_parameters() if own.grad is not None})
    assert used[0] == used[1]
    assert len(used[0]) > 20


CLASSES = TokenClasses(("two", "three"), ((300, 310), (320, 330, 340)), WordBoundaries(torch.ones(1), torch.ones(1)))
EVERY = torch.arange(400)


@pytest.mark.parametrize("chosen", [[1, 6], [4]])
def test_words_of_a_class_are_alike_in_the_other_senses_and_every_token_keeps_its_sum(make_backpack, chosen):
    ranker = make_backpack(dropout=0.5).train()
    ranker.eval()
    with torch.no_grad():
        before = ranker.backpack.senses(EVERY)
    assert project_into_senses(ranker.train(), CLASSES, chosen) == 3, "one difference of two words, two of three"
    assert all(module.training for module in ranker.modules())
    ranker.eval()
    with torch.no_grad():
        after = ranker.backpack.senses(EVERY)
    torch.testing.assert_close(after.sum(1), before.sum(1), atol=1e-4, rtol=1e-4)
    others = [sense for sense in range(8) if sense not in chosen]
    for ids in CLASSES.members:
        for token in ids[1:]:
            gap_before = before[token] - before[ids[0]]
            gap = after[token] - after[ids[0]]
            assert gap_before[others].abs().max() > 0.1
            assert gap[others].abs().max() < 1e-4
            shared = gap_before[others].sum(0) / len(chosen)
            torch.testing.assert_close(gap[chosen], gap_before[chosen] + shared, atol=1e-4, rtol=1e-4)


def test_nothing_but_the_projection_changes_and_a_second_time_nothing_at_all(make_backpack):
    ranker = make_backpack()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    project_into_senses(ranker, CLASSES, [2])
    once = {name: value.clone() for name, value in ranker.state_dict().items()}
    assert [name for name in before if not torch.equal(before[name], once[name])] == [
        "backpack.sense_network.final_mlp.c_proj.weight"
    ]
    project_into_senses(ranker, CLASSES, [2])
    torch.testing.assert_close(dict(ranker.state_dict()), once, atol=1e-5, rtol=1e-4)
