"""A Backpack over an encoder: equal to the library's own encoder, to the slow sum, and to itself
after a round trip.
"""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast

from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attention import _attention_per_text, _padded_attention
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.factory import backpack_on_backbone
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.attribution import attribute
from backpack_rank.senses.sensitivity import sensitivity
from backpack_rank.senses.views import View
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.pretraining import LanguageModelModule

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "he",
    "she",
    "man",
    "woman",
    "saw",
    "the",
    "doctor",
    "in",
    "a",
    "ward",
    "soup",
    "who",
    "cooks",
]
DOCUMENTS = ["he saw the doctor in the ward", "she cooks", "", "the woman saw a man"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT as the hub would give it."""
    path = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = BertConfig(
        vocab_size=len(WORDS), max_position_embeddings=40, initializer_range=0.3, **shape
    )
    BertModel(config).save_pretrained(path)
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return PreTrainedTokenizerFast.from_pretrained(folder)


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


@pytest.fixture(scope="module")
def batch(pair_tokenizer):
    return PackedBatch.from_sequences(pair_tokenizer.pairs("who cooks soup", DOCUMENTS))


@torch.no_grad()
def test_hidden_states_are_those_of_the_library_with_padding_and_token_types(
    folder, ranker, tokenizer, batch
):
    assert tokenizer.convert_ids_to_tokens(batch.input_ids[:6].tolist()) == [
        "[CLS]",
        "who",
        "cooks",
        "soup",
        "[SEP]",
        "he",
    ]
    plain_model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids, mask = batch.pad(batch.input_ids), batch.padding_mask()
    types = torch.zeros_like(ids)
    types[:, 5:] = 1
    expected = plain_model(
        input_ids=ids, attention_mask=mask.long(), token_type_ids=types
    ).last_hidden_state
    hidden_states = batch.pad(ranker.backpack.hidden_states(batch))
    torch.testing.assert_close(hidden_states, expected * mask[..., None], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_scores_are_the_head_over_the_sum_of_weighted_senses(ranker, batch):
    """Weights of the first token, by the definition of attention; senses token by token."""
    network = ranker.backpack
    last, below = network.last_and_below(batch)
    queries, keys = network.sense_weight_net.split(last, below)
    scores = []
    for text in range(len(batch)):
        rows = range(int(batch.offsets[text]), int(batch.offsets[text + 1]))
        mix = torch.zeros(32)
        for sense in range(8):
            logits = (
                torch.stack([queries[rows[0], sense] @ keys[row, sense] for row in rows]) / 2
            )  # sqrt(32 / 8)
            for share, row in zip(torch.softmax(logits, dim=0), rows, strict=True):
                mix += share * network.senses(batch.input_ids[row])[sense]
        scores.append(ranker.head(mix))
    torch.testing.assert_close(ranker(batch).scores, torch.stack(scores), atol=1e-5, rtol=1e-4)
    assert ranker(batch).scores.std() > 1e-2


def test_a_saved_ranker_is_loaded_with_its_encoder_and_start_token(
    ranker, pair_tokenizer, batch, tmp_path
):
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, other = load_ranker(tmp_path / "ranker")
    assert isinstance(again, BackpackForRanking)
    assert (other.start_id, other.max_length) == (WORDS.index("[CLS]"), 32)
    state = again.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in ranker.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(
            again.eval()(batch).scores, ranker(batch).scores, atol=1e-6, rtol=0
        )


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
        ranker.backpack.senses(torch.tensor(WORDS.index(w))) for w in ("he", "she", "man", "woman")
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


def test_both_forms_of_attention_in_both_directions_are_equal(batch):
    generator = torch.Generator().manual_seed(0)
    parts = [
        torch.randn(len(batch.input_ids), 4, 8, generator=generator, dtype=torch.float64)
        for _ in range(3)
    ]
    per_text = _attention_per_text(*parts, batch, None, 0.0, causal=False)
    torch.testing.assert_close(
        _padded_attention(*parts, batch, None, 0.0, causal=False), per_text, atol=1e-12, rtol=0
    )
    causal = _attention_per_text(*parts, batch, None, 0.0, causal=True)
    assert (per_text - causal).abs().max() > 1e-3


def test_gradients_reach_every_parameter_but_positions_that_no_text_has(ranker, batch):
    ranker.zero_grad()
    ranker(batch).scores.square().sum().backward()
    without = {name for name, parameter in ranker.named_parameters() if parameter.grad is None}
    assert without == set()
    ranker.zero_grad()


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
        (
            "bert-generation",
            {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
        ),
        ("xlnet", {"n_layer": 2, "n_head": 4, "d_head": 8, "d_inner": 48}),
        ("bert", {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}),
    ],
)
def test_what_sees_the_tokens_behind_a_token_is_no_language_model(kind, options):
    backbone_config = AutoConfig.for_model(kind, vocab_size=30, hidden_size=32, **options)
    config = BackpackConfig(backbone_config=backbone_config, num_senses=8, pooling="last")
    with pytest.raises(
        ValueError, match=f"'{kind}' reads in both directions, so it is no language model"
    ):
        BackpackLMHeadModel(config)
    with pytest.raises(ValueError, match="predicts no next token"):
        LanguageModelModule(BackpackForRanking(config), OptimizerConfig())


def test_an_encoder_that_is_made_a_decoder_is_a_language_model():
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    backbone_config = AutoConfig.for_model(
        "bert-generation", vocab_size=30, hidden_size=32, is_decoder=True, **shape
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
