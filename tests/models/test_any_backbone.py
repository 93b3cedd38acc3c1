"""Backpacks and cross-encoders over many kinds of backbones: read as the library reads them, one
text at a time.
"""

import copy

import pytest
import torch
from moved_tables import edited
from tokenizers import Tokenizer, models
from transformers import AutoModel, PreTrainedTokenizerFast, T5Config, ViTConfig
from whole_words import (
    DISTILBERT,
    DOCUMENTS,
    GROUPED,
    SHAPE,
    WORDS,
    save_backbone,
    word_tokenizer,
)

from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attribute_senses import AttributeSenses, FormRow
from backpack_rank.models.backbone import supports_packing
from backpack_rank.models.configuration import BackpackConfig, pooling_of
from backpack_rank.models.factory import backpack_on_backbone, cross_encoder
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.models.token_shift import TokenClasses, token_shift

ENCODERS = {
    "bert": SHAPE,
    "roberta": SHAPE,
    "electra": {**SHAPE, "embedding_size": 16},
    "albert": {**SHAPE, "embedding_size": 16},
    "distilbert": DISTILBERT,
    "mpnet": SHAPE,
    "deberta-v2": {
        **SHAPE,
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "type_vocab_size": 0,
    },
    "modernbert": {**SHAPE, "global_attn_every_n_layers": 2, "local_attention": 4},
}
DECODERS = {
    "gpt2": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 40,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8},
    "mistral": {**GROUPED, "sliding_window": 4},
    # The module of their word embeddings multiplies by the root of the hidden size.
    "gemma": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8, "sliding_window": 4},
    "xglm": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48},
    "biogpt": SHAPE,
    # The configurations of these two know no padding.
    "codegen": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    "rwkv": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    # Its loaded networks have a buffer that no file holds.
    "falcon_h1": {
        **GROUPED,
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_chunk_size": 8,
    },
}
KINDS = {**ENCODERS, **DECODERS}
USUAL = {"bert", "deberta-v2", "gpt2", "llama"}
"""Two encoders, one of them packed, and two decoders. To try all the others takes long."""
PACKED = {"bert", "electra", "albert", "distilbert", "gpt2", "llama", "qwen2", "qwen3"}


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer()


@pytest.fixture(scope="module")
def folder_of(tokenizer, tmp_path_factory):
    """A small model of each kind with random weights, as the hub would give it."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = save_backbone(folder, tokenizer, kind, **KINDS[kind])
        return made[kind]

    return make


@pytest.fixture(
    params=[
        kind if kind in USUAL else pytest.param(kind, marks=pytest.mark.slow)
        for kind in sorted(KINDS)
    ]
)
def kind(request):
    return request.param


@pytest.fixture(params=[backpack_on_backbone, cross_encoder])
def build(request):
    return request.param


def shaken(ranker):
    """The new parts away from their small starting values."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in ranker.named_parameters():
            if "backbone." not in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return ranker.eval()


def new(build, folder, tokenizer):
    options = {"senses": 8} if build is backpack_on_backbone else {}
    ranker = shaken(build(tokenizer, name=str(folder), **options))
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 24)
    return (
        ranker,
        pair_tokenizer,
        PackedBatch.from_sequences(pair_tokenizer.pairs("w20 w21", DOCUMENTS)),
    )


def network(ranker):
    return ranker.backpack if isinstance(ranker, BackpackForRanking) else ranker


@torch.no_grad()
def test_hidden_states_are_those_of_the_library_for_each_text_alone(
    kind, folder_of, tokenizer, build
):
    ranker, _, batch = new(build, folder_of(kind), tokenizer)
    assert supports_packing(ranker.config) == (kind in PACKED)
    library = AutoModel.from_pretrained(folder_of(kind), attn_implementation="eager").eval()
    expected = []
    for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        ids = batch.input_ids[start:end][None]
        options = {}
        if getattr(library.config, "type_vocab_size", 0) > 1:
            separator = ids[0].tolist().index(3)
            options["token_type_ids"] = (torch.arange(ids.shape[1]) > separator).long()[None]
        expected.append(
            library(
                input_ids=ids, attention_mask=torch.ones_like(ids), **options
            ).last_hidden_state[0]
        )
    hidden_states = network(ranker).hidden_states(batch)
    assert hidden_states.std() > 0.1
    torch.testing.assert_close(hidden_states, torch.cat(expected), atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_a_saved_folder_gives_the_same_scores_without_the_backbone_at_hand(
    kind, folder_of, tokenizer, build, tmp_path
):
    ranker, pair_tokenizer, batch = new(build, folder_of(kind), tokenizer)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, other = load_ranker(tmp_path / "ranker")
    assert type(again) is type(ranker)
    assert (other.start_id, other.max_length) == (pair_tokenizer.start_id, 24)
    state = again.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in ranker.state_dict().items())
    torch.testing.assert_close(again.eval()(batch).scores, ranker(batch).scores, atol=1e-6, rtol=0)
    assert ranker(batch).scores.std() > 1e-3


@torch.no_grad()
def test_encoders_are_read_at_the_first_token_and_decoders_at_the_last(kind, folder_of, tokenizer):
    ranker, pair_tokenizer, batch = new(cross_encoder, folder_of(kind), tokenizer)
    hidden = ranker.hidden_states(batch)
    ends = [int(end) for end in batch.offsets]
    rows = ends[:-1] if kind in ENCODERS else [end - 1 for end in ends[1:]]
    torch.testing.assert_close(ranker(batch).scores, ranker.head(hidden[rows]))
    assert pair_tokenizer.start_id == (2 if kind in ENCODERS else None)
    start = [2] if kind in ENCODERS else []
    assert batch.input_ids[: len(start) + 4].tolist() == [*start, 24, 25, 3, 5]


@torch.no_grad()
def test_backpack_scores_are_the_head_over_the_slow_sum_of_weighted_senses(
    kind, folder_of, tokenizer
):
    ranker, _, batch = new(backpack_on_backbone, folder_of(kind), tokenizer)
    backpack = ranker.backpack
    if ranker.config.sense_keys == "below_last":
        states = backpack.last_and_below(batch)
    else:
        states = (backpack.hidden_states(batch),)
    queries, keys = backpack.sense_weight_net.split(*states)
    expected = []
    for text in range(len(batch)):
        rows = list(range(int(batch.offsets[text]), int(batch.offsets[text + 1])))
        read = rows[0] if kind in ENCODERS else rows[-1]
        mix = torch.zeros(32)
        for sense in range(8):
            logits = (
                torch.stack([queries[read, sense] @ keys[row, sense] for row in rows]) / 2
            )  # sqrt(32 / 8)
            for share, row in zip(torch.softmax(logits, dim=0), rows, strict=True):
                mix += share * backpack.senses(batch.input_ids[row])[sense]
        expected.append(ranker.head(mix))
    torch.testing.assert_close(ranker(batch).scores, torch.stack(expected), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_mix_at_all_positions_is_the_pooled_one_at_the_pooled_token(kind, folder_of, tokenizer):
    ranker, _, batch = new(backpack_on_backbone, folder_of(kind), tokenizer)
    if getattr(ranker.config.backbone_config, "type_vocab_size", 0) > 1:
        ranker.config.separator_id = None  # forward() knows no token types
    ids, mask = batch.pad(batch.input_ids), batch.padding_mask().long()
    mixed = ranker.backpack(ids, mask).mixed
    read = torch.zeros(len(batch), dtype=torch.long) if kind in ENCODERS else mask.sum(1) - 1
    pooled = ranker.backpack.pooled_senses(batch).sum(1)
    torch.testing.assert_close(mixed[torch.arange(len(batch)), read], pooled, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "gpt2"])
@pytest.mark.parametrize("pooling", ["first", "last"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_are_counted_from_the_first_token_wherever_padding_is(
    folder_of, tokenizer, kind, pooling, side
):
    torch.manual_seed(0)
    ranker = backpack_on_backbone(tokenizer, name=folder_of(kind), senses=8, pooling=pooling).eval()
    ranker.config.separator_id = None  # forward() knows no token types
    texts, length = [[5, 6, 7, 8, 9, 10], [11, 6, 5]], 6
    pooled = ranker.backpack.pooled_senses(PackedBatch.from_sequences(texts)).sum(1)
    for text, expected in zip(texts, pooled, strict=True):
        padding = length - len(text)
        before = padding if side == "left" else 0
        # What stands at padding is read by nobody, whichever token it is.
        ids = torch.tensor([[4] * before + text + [4] * (padding - before)])
        mask = torch.tensor([[0] * before + [1] * len(text) + [0] * (padding - before)])
        place = before if pooling == "first" else before + len(text) - 1
        mixed = ranker.backpack(ids, mask).mixed[0, place]
        torch.testing.assert_close(mixed, expected, atol=1e-6, rtol=1e-4)


CLASSES = WordClasses(
    "test", (WordClass("low", ("w1", "w7", "w9")), WordClass("query", ("w20", "w21")))
)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_words_of_a_class_are_read_closer_to_the_mean_of_what_the_backbone_reads(
    kind, folder_of, tokenizer, alpha
):
    ranker, _, batch = new(cross_encoder, folder_of(kind), tokenizer)
    classes, other = TokenClasses.of(tokenizer, CLASSES), copy.deepcopy(ranker)
    table = other.get_input_embeddings().weight
    table.copy_(edited(table, classes, alpha))
    scores = ranker(batch, token_shift=token_shift(ranker, classes, "weights", alpha)).scores
    torch.testing.assert_close(scores, other(batch).scores, atol=1e-5, rtol=1e-5)
    assert (scores - ranker(batch).scores).abs().max() > 1e-4


def read_as_one(backpack, classes):
    """Attribute senses in queries and documents, each word of a class of a group of its own."""
    rows = [
        FormRow((token,), place, group, True)
        for place, ids in enumerate(classes.members)
        for group, token in enumerate(ids)
    ]
    groups = [["test", str(group)] for group in range(1 + max(row.group for row in rows))]
    sizes = {"groups": groups, "where": "all", "separator_id": 0, "forms": len(rows), "pieces": 1}
    backpack.config.attribute_senses = sizes
    backpack.attribute_senses = AttributeSenses(
        backpack.get_input_embeddings().num_embeddings, sizes
    )
    backpack.attribute_senses.set_forms(rows, classes.boundaries)


@torch.no_grad()
def test_words_that_are_read_as_one_have_the_mean_of_what_the_backbone_reads(
    kind, folder_of, tokenizer
):
    ranker, _, batch = new(backpack_on_backbone, folder_of(kind), tokenizer)
    classes, other = TokenClasses.of(tokenizer, CLASSES), copy.deepcopy(ranker)
    table = other.get_input_embeddings().weight
    table.copy_(edited(table, classes, 0.0))
    plain = ranker.backpack.pooled_weights(batch)
    read_as_one(ranker.backpack, classes)
    pooled_weights = ranker.backpack.pooled_weights(ranker.backpack.read(batch))
    torch.testing.assert_close(
        pooled_weights, other.backpack.pooled_weights(batch), atol=1e-5, rtol=1e-4
    )
    assert (pooled_weights - plain).abs().max() > 1e-4


def test_gradients_reach_backbone_and_new_parts(kind, folder_of, tokenizer):
    ranker, _, batch = new(backpack_on_backbone, folder_of(kind), tokenizer)
    ranker(batch).scores.square().sum().backward()
    without = {name for name, parameter in ranker.named_parameters() if parameter.grad is None}
    assert without == set()


@torch.no_grad()
def test_an_attention_of_the_users_choice_gives_the_same_scores(folder_of, tokenizer):
    for kind in ("bert", "qwen2"):
        plain, _, batch = new(cross_encoder, folder_of(kind), tokenizer)
        chosen = cross_encoder(tokenizer, name=str(folder_of(kind)), attention="eager").eval()
        chosen.load_state_dict(plain.state_dict())
        assert supports_packing(plain.config)
        assert not supports_packing(chosen.config)
        assert chosen.backbone.config._attn_implementation == "eager"
        torch.testing.assert_close(chosen(batch).scores, plain(batch).scores, atol=1e-5, rtol=1e-5)


# Padding reaches the texts in these, each in its own way.
MIXING = {
    "fnet": SHAPE,
    "nystromformer": {**SHAPE, "num_landmarks": 64, "segment_means_seq_len": 64},
    "convbert": SHAPE,
    "yoso": SHAPE,
    "cpmant": {**SHAPE, "dim_head": 8, "dim_ff": 48, "prompt_types": 3, "prompt_length": 1},
}


@torch.no_grad()
@pytest.mark.parametrize(
    "other",
    [kind if kind == "convbert" else pytest.param(kind, marks=pytest.mark.slow) for kind in MIXING],
)
def test_texts_are_read_one_by_one_where_padding_reaches_them(
    other, tokenizer, build, tmp_path, caplog
):
    save_backbone(tmp_path / "model", tokenizer, other, **MIXING[other])
    ranker, pair_tokenizer, batch = new(build, tmp_path / "model", tokenizer)
    assert network(ranker).reads_one_by_one()
    assert (
        f"a backbone of type '{other}' makes of a text depends on longer texts beside it"
        in caplog.text
    )
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, _ = load_ranker(tmp_path / "ranker")
    assert network(again)._one_by_one, "found out before anybody casts it"
    for made in (ranker, again.eval()):
        alone = torch.cat([made(text).scores for text in batch.texts()])
        torch.testing.assert_close(made(batch).scores, alone, atol=1e-5, rtol=1e-5)
    network(ranker)._one_by_one = False
    assert (ranker(batch).scores - alone).abs().max() > 1e-3, "otherwise this shows nothing"


@torch.no_grad()
def test_padding_is_the_padding_of_the_model(tokenizer, tmp_path):
    """MobileBERT reads each token with its neighbours; its padding token has a vector of 0, as has
    nothing.
    """
    options = {
        **SHAPE,
        "embedding_size": 16,
        "true_hidden_size": 16,
        "intra_bottleneck_size": 16,
        "pad_token_id": 25,
        "num_feedforward_networks": 1,
    }
    save_backbone(tmp_path, tokenizer, "mobilebert", **options)
    ranker, _, batch = new(cross_encoder, tmp_path, tokenizer)
    assert not ranker.reads_one_by_one()
    alone = torch.cat([ranker(text).scores for text in batch.texts()])
    torch.testing.assert_close(ranker(batch).scores, alone, atol=1e-5, rtol=1e-5)


def test_every_other_backbone_reads_texts_side_by_side(kind, folder_of, tokenizer):
    assert not cross_encoder(tokenizer, name=str(folder_of(kind))).reads_one_by_one()


@pytest.mark.parametrize(
    ("other", "options"), [("layoutlm", SHAPE), ("nystromformer", {**SHAPE, "num_landmarks": 4})]
)
def test_a_backbone_that_needs_more_than_token_ids_is_refused_when_the_ranker_is_made(
    other, options, tokenizer, build, tmp_path
):
    save_backbone(tmp_path, tokenizer, other, **options)
    with pytest.raises(
        ValueError, match=rf"type '{other}' does not read texts of any length from their token ids"
    ):
        build(
            tokenizer,
            name=str(tmp_path),
            **({"senses": 8} if build is backpack_on_backbone else {}),
        )


def test_a_start_token_that_a_decoders_tokenizer_sets_is_kept(folder_of):
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    starting = word_tokenizer("<s> $A", **special)
    ranker = cross_encoder(starting, name=str(folder_of("llama")))
    pair_tokenizer = make_pair_tokenizer(starting, ranker, 24)
    assert pair_tokenizer.pairs("w20", ["w1"])[0].tolist() == [2, 24, 3, 5, 3]


@torch.no_grad()
def test_a_text_longer_than_the_positions_is_refused(kind, folder_of, tokenizer, build):
    if kind == "deberta-v2":
        pytest.skip(
            "DeBERTa's positions here are relative and have a limit all the same; see the next test"
        )
    ranker, _, _ = new(build, folder_of(kind), tokenizer)
    limit = ranker.config.n_positions
    assert limit == {"roberta": 39, "mpnet": 38}.get(
        kind, 40
    )  # positions start behind the padding index
    network(ranker).hidden_states(PackedBatch.from_sequences([[5] * limit]))
    with pytest.raises(
        ValueError,
        match=f"a text of {limit + 1} tokens is longer than the backbone's {limit} positions",
    ):
        network(ranker).hidden_states(PackedBatch.from_sequences([[5] * (limit + 1)]))
    with pytest.raises(ValueError, match=f"max_length={limit + 1} exceeds"):
        make_pair_tokenizer(tokenizer, ranker, limit + 1)


def test_a_backbone_without_word_embeddings_is_refused(tokenizer, tmp_path):
    shape = {**SHAPE, "image_size": 8, "patch_size": 4}
    config = ViTConfig(**shape)
    with pytest.raises(ValueError, match=r"'vit' is neither a known encoder nor a known decoder"):
        pooling_of(config)
    with pytest.raises(
        ValueError, match=r"'vit' gives no word embeddings \(get_input_embeddings\(\) gives ViT"
    ):
        BackpackForRanking(BackpackConfig(backbone_config=config, pooling="first", num_senses=8))


def test_an_encoder_decoder_is_refused(tokenizer):
    config = T5Config(d_model=32, vocab_size=len(WORDS))
    with pytest.raises(ValueError, match="'t5' have an encoder and a decoder"):
        BackpackForRanking(BackpackConfig(backbone_config=config, pooling="first", num_senses=8))


def test_a_tokenizer_of_another_model_is_refused(folder_of, tokenizer, build):
    more = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, cls_token="<s>")
    more.add_tokens(["another"])
    with pytest.raises(
        ValueError, match=r"the tokenizer has 31 tokens, but .* has embeddings for 30"
    ):
        build(more, name=str(folder_of("bert")))
    few = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "a": 1}, unk_token="a")),
        cls_token="<s>",
    )
    with pytest.raises(
        ValueError, match=r"the tokenizer has 2 tokens, but .* give the tokenizer that belongs"
    ):
        build(few, name=str(folder_of("bert")))


def test_another_pooling_can_be_asked_for_and_a_wrong_one_is_refused(folder_of, tokenizer):
    ranker = cross_encoder(tokenizer, name=str(folder_of("bert")), pooling="last")
    batch = PackedBatch.from_sequences([[5, 6], [7]])
    assert ranker.pooled_positions(batch).tolist() == [1, 2]
    with pytest.raises(ValueError, match="pooling='middle'"):
        cross_encoder(tokenizer, name=str(folder_of("bert")), pooling="middle")


def test_a_cross_encoder_has_no_senses(folder_of, tokenizer):
    ranker, _, batch = new(cross_encoder, folder_of("bert"), tokenizer)
    assert isinstance(ranker, CrossEncoderForRanking)
    for options in ({"return_senses": True}, {"sense_weights": torch.ones(8)}):
        with pytest.raises(TypeError, match="CrossEncoderForRanking has no sense vectors"):
            ranker(batch, **options)
