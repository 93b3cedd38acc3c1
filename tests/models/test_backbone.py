"""A Backpack over an encoder: its dial, sensitivities and explanations, and what it is no model for.

That its states and scores are those of the library: test_any_backbone.py.
"""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, PreTrainedTokenizerFast
from whole_words import SHAPE, save_backbone

from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.factory import backpack_on_backbone
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.attribution import attribute
from backpack_rank.senses.sensitivity import sensitivity
from backpack_rank.senses.views import View
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.pretraining import LanguageModelModule

SENTENCES = "he she saw the man woman doctor in a ward soup who cooks"


@pytest.fixture(scope="module")
def tokenizer():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: place for place, word in enumerate([*special, *SENTENCES.split()])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = ("pad_token", "unk_token", "cls_token", "sep_token")
    return PreTrainedTokenizerFast(tokenizer_object=words, **dict(zip(names, special, strict=True)))


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A small BERT as the hub would give it."""
    return save_backbone(tmp_path_factory.mktemp("bert"), tokenizer, "bert", **SHAPE)


@pytest.fixture(scope="module")
def ranker(folder, tokenizer):
    torch.manual_seed(1)
    ranker = backpack_on_backbone(tokenizer, name=str(folder), senses=8).eval()
    with torch.no_grad():
        for name, parameter in ranker.named_parameters():
            if ".backbone." not in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return ranker


@pytest.fixture(scope="module")
def pair_tokenizer(tokenizer, ranker):
    return make_pair_tokenizer(tokenizer, ranker, 32)


def test_the_dial_of_tokens_is_exact_here_too(ranker, pair_tokenizer, tokenizer):
    classes = TokenClasses.of(
        tokenizer,
        WordClasses("test", (WordClass("he", ("he", "she")), WordClass("man", ("man", "woman")))),
    )
    scorer = Scorer(ranker, pair_tokenizer)
    documents = ["he saw the woman", "she saw the man"]
    plain = scorer.score("who cooks", documents)
    assert abs(plain[0] - plain[1]) > 1e-3
    view = View(token_shift=token_shift(ranker, classes, "both", 0.0))
    first = scorer.score("who cooks", documents, view)
    second = scorer.score("who cooks", documents[::-1], view)
    assert first.tobytes() == second.tobytes()


def test_sensitivity_and_attribution_know_encoders(ranker, pair_tokenizer, tokenizer):
    sensitivities = sensitivity(ranker.backpack, tokenizer, [("he", "she"), ("man", "woman")])
    he, she, man, woman = (
        ranker.backpack.senses(torch.tensor(tokenizer.convert_tokens_to_ids(word)))
        for word in ("he", "she", "man", "woman")
    )
    cosines = [torch.cosine_similarity(a, b, dim=-1) for a, b in ((he, she), (man, woman))]
    torch.testing.assert_close(
        sensitivities.values, torch.stack(cosines).mean(0).detach(), atol=1e-6, rtol=0
    )
    explained = attribute(ranker, pair_tokenizer, "who cooks", "she cooks soup")
    total = explained.contributions.sum().item()
    assert total == pytest.approx(explained.score - explained.empty_score, abs=1e-5)
    assert explained.score == pytest.approx(
        float(Scorer(ranker, pair_tokenizer).score("who cooks", ["she cooks soup"])[0]), abs=1e-5
    )


def test_new_parts_have_a_learning_rate_of_their_own(ranker):
    optimizer = OptimizerConfig(1e-4, head_learning_rate=5e-4).optimizer(ranker)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    names = dict(ranker.named_parameters())
    assert len(rates) == len(names)
    assert rates[id(names["backpack.backbone.encoder.layer.0.output.dense.weight"])] == 1e-4
    assert rates[id(names["backpack.sense_network.ln.weight"])] == 5e-4
    assert rates[id(names["head.out.bias"])] == 5e-4


def test_an_encoder_is_no_language_model(ranker):
    with pytest.raises(
        ValueError, match="'bert' reads in both directions, so it is no language model"
    ):
        BackpackLMHeadModel(ranker.config)
    with pytest.raises(
        ValueError,
        match=r"this BackpackForRanking predicts no next token: use pretraining\.epochs=0",
    ):
        LanguageModelModule(ranker, OptimizerConfig())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bert-generation", SHAPE),
        ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_head": 8, "d_inner": 48}),
        ("bert", SHAPE),
    ],
)
def test_what_sees_the_tokens_behind_a_token_is_no_language_model(kind, options):
    backbone_config = AutoConfig.for_model(kind, vocab_size=30, **options)
    config = BackpackConfig(backbone_config=backbone_config, num_senses=8, pooling="last")
    with pytest.raises(
        ValueError, match=f"'{kind}' reads in both directions, so it is no language model"
    ):
        BackpackLMHeadModel(config)
    with pytest.raises(ValueError, match="predicts no next token"):
        LanguageModelModule(BackpackForRanking(config), OptimizerConfig())


def test_an_encoder_that_is_made_a_decoder_is_a_language_model():
    backbone_config = AutoConfig.for_model(
        "bert-generation", vocab_size=30, is_decoder=True, **SHAPE
    )
    model = BackpackLMHeadModel(
        BackpackConfig(backbone_config=backbone_config, num_senses=8)
    ).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        first, second = model(ids).logits, model(torch.tensor([[5, 6, 7, 9]])).logits
    torch.testing.assert_close(first[:, :3], second[:, :3])


def test_an_encoder_without_a_first_token_is_refused(tokenizer, folder):
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, unk_token="[UNK]")
    with pytest.raises(ValueError, match=r"has no first token \(\[CLS\]\)"):
        backpack_on_backbone(bare, name=str(folder))
