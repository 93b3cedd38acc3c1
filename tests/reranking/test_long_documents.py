"""Documents longer than a ranker's input: what is read of them, and that the best chunk counts."""

import numpy as np
import pytest
import torch
from foreign_rankers import bert, xlm_roberta
from foreign_rankers import saved as save
from hypothesis import given
from hypothesis import strategies as st

from backpack_rank.data.batching import Pairs, join_pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.pipelines.certificate import certify
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.senses.cache import SenseCache

QUERY = "doctor in the ward"
SHORT = ["he saw his mother", "a bridge", "she saw her mother"]
LONG = [
    "bread and fish " * 15 + "she is a doctor in the ward " * 8,
    "she saw his mother on a bridge " * 6 + "and " + "soup for guests " * 12 + "he",
    "he saw bread " * 25,
]


@pytest.fixture
def reranker(make_backpack, pair_tokenizer):
    return PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))


@pytest.fixture
def without_senses(make_gpt2, pair_tokenizer):
    return PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))


def collection_of(documents):
    texts = {f"d{number}": text for number, text in enumerate(documents)}
    return Collection("tiny/test", MemoryStore(texts), {"q": QUERY}, {})


def run_of(documents):
    return {"q": {f"d{number}": 1.0 for number in range(len(documents))}}


def chunks_by_hand(ids, room, most=None, overlap=0):
    """Beginnings of chunks step by step, then the last one as far back as it is full."""
    begins = list(range(0, max(1, len(ids)), room - overlap))[:most]
    read = ids[: begins[-1] + room]
    chunks = []
    for begin in begins:
        chunks.append(read[min(begin, max(0, len(read) - room)) :][:room])
        if begin + room >= len(read):
            break
    return chunks


def scores_by_hand(reranker, query, documents, **chunking):
    """The ranker's forward pass for each chunk, all chunks of a document in one batch."""
    tokenizer = reranker.scorer.pair_tokenizer
    query_ids = tokenizer.encode_query(query)
    room = tokenizer.room(query_ids)
    view = reranker.hook.view
    scores = []
    for ids in tokenizer.encode(documents):
        chunks = chunks_by_hand(ids, room, **chunking)
        batch = PackedBatch.from_sequences([tokenizer.join(query_ids, chunk) for chunk in chunks])
        with torch.no_grad():
            output = reranker.scorer.ranker(
                batch, sense_weights=view.sense_weights, token_shift=view.token_shift
            )
        scores.append(output.scores.max().item())
    return scores


@given(
    length=st.integers(0, 200),
    room=st.integers(1, 40),
    most=st.none() | st.integers(1, 6),
    share=st.floats(0, 0.5),
)
def test_chunks_are_full_begin_at_the_beginning_and_leave_no_gap(length, room, most, share):
    overlap = int(share * room)
    document = np.arange(length)
    settings = LongDocuments("chunks", most, overlap)
    chunks = settings.chunks(document, room)
    expected = chunks_by_hand(list(range(length)), room, most, overlap)
    assert [chunk.tolist() for chunk in chunks] == expected
    assert most is None or len(chunks) <= most
    assert {len(chunk) for chunk in chunks} == {min(room, length)}
    read = settings.tokens(room)
    assert set(np.concatenate(chunks).tolist()) == set(document[:read].tolist())


def test_an_overlap_is_at_most_half_of_a_chunk():
    """Behind a long query, 20 tokens of overlap would leave no step."""
    chunks = LongDocuments("chunks", chunk_overlap=20).chunks(np.arange(12), room=6)
    assert [chunk.tolist() for chunk in chunks] == [
        [0, 1, 2, 3, 4, 5],
        [3, 4, 5, 6, 7, 8],
        [6, 7, 8, 9, 10, 11],
    ]


@pytest.mark.parametrize(
    "chunking", [{}, {"most": 2}, {"overlap": 7}, {"most": 3, "overlap": 10}], ids=str
)
@pytest.mark.parametrize("kind", ["reranker", "without_senses"])
def test_a_document_has_the_score_of_its_best_chunk(request, kind, chunking):
    reranker = request.getfixturevalue(kind)
    options = {
        "long_documents": "chunks",
        "max_chunks_per_doc": chunking.get("most"),
        "chunk_overlap": chunking.get("overlap", 0),
    }
    documents = [*SHORT, *LONG]
    expected = scores_by_hand(reranker, QUERY, documents, **chunking)
    pairs = [(QUERY, text) for text in documents]
    assert reranker.predict(pairs, **options).tolist() == pytest.approx(expected, abs=1e-5)
    settings = ScoringSettings(**options)
    scorer = Scorer(reranker.scorer.ranker, reranker.scorer.pair_tokenizer, settings)
    ranked = PointwiseReranker(scorer).rerank(run_of(documents), collection_of(documents))
    assert list(ranked["q"].values()) == pytest.approx(expected, abs=1e-5)
    assert (expected - reranker.predict(pairs)).max() > 1e-3, "another chunk than the first"


@pytest.mark.parametrize("kind", [bert, xlm_roberta])
def test_a_classifier_of_another_library_scores_chunks_as_its_library_scores_them(kind, tmp_path):
    """The library pads, and is given each chunk as ids between the tokens of its template."""
    model, tokenizer = save(kind, tmp_path / "ranker")
    query, document = "the doctor saw", "he saw a nurse " * 10 + "she saw bread and fish " * 7
    query_ids, ids = tokenizer([query, document], add_special_tokens=False)["input_ids"]
    room = load(tmp_path / "ranker").scorer.pair_tokenizer.max_length
    room -= len(query_ids) + tokenizer.num_special_tokens_to_add(pair=True)
    inputs = tokenizer.pad(
        [
            tokenizer.prepare_for_model(query_ids, chunk)
            if hasattr(tokenizer, "prepare_for_model")
            else _joined(tokenizer, query_ids, chunk)
            for chunk in chunks_by_hand(ids, room, overlap=3)
        ],
        return_tensors="pt",
    )
    with torch.no_grad():
        logits = model(**inputs).logits[:, 0]
    assert len(logits) > 3
    reranker = load(tmp_path / "ranker").reading("chunks", chunk_overlap=3)
    (score,) = reranker.predict([(query, document)])
    assert score == pytest.approx(logits.max().item(), abs=1e-5)
    assert logits.max() - logits.min() > 1e-3


def _joined(tokenizer, query_ids, chunk):
    """What the tokenizer makes of two texts, with the ids of these in their place."""
    ids = tokenizer("a", "a")
    (first,), (second,) = (tokenizer("a", add_special_tokens=False)["input_ids"],) * 2
    template = ids["input_ids"]
    start = template.index(first)
    middle_end = len(template) - 1 - template[::-1].index(second)
    types = ids.get("token_type_ids")
    pieces = [template[:start], query_ids, template[start + 1 : middle_end], chunk]
    pieces.append(template[middle_end + 1 :])
    joined = {"input_ids": [token for piece in pieces for token in piece]}
    joined["attention_mask"] = [1] * len(joined["input_ids"])
    if types is not None:
        of_query = len(pieces[0]) + len(query_ids) + types[start + 1 : middle_end].count(0)
        joined["token_type_ids"] = [0] * of_query
        joined["token_type_ids"] += [1] * (len(joined["input_ids"]) - of_query)
    return joined


@pytest.mark.parametrize("kind", ["reranker", "without_senses"])
def test_a_text_of_one_chunk_keeps_its_very_score_whatever_stands_beside_it(
    request, kind, tmp_path
):
    reranker = request.getfixturevalue(kind)
    documents = [SHORT[0], LONG[0], SHORT[1], LONG[1], SHORT[2]]
    is_short = [True, False, True, False, True]
    pairs = [(QUERY, text) for text in documents]
    chunks = reranker.reading("chunks", chunk_overlap=5)
    for policy, alpha in (("paired_tokens", 0.5), ("renditions", 0.5), (None, None)):
        cut_scores = reranker.predict(pairs, alpha=alpha, policy=policy)
        scores = chunks.predict(pairs, alpha=alpha, policy=policy)
        assert scores[is_short].tolist() == cut_scores[is_short].tolist(), policy
    assert (scores >= cut_scores).all(), "the first chunk is what a cut document is"
    run, collection = run_of(documents), collection_of(documents)
    for cache in (None, SenseCache(tmp_path)):
        reranker.cache = chunks.cache = cache
        cut_scores = np.array([*reranker.rerank(run, collection)["q"].values()])
        scores = np.array([*chunks.rerank(run, collection)["q"].values()])
        assert scores[is_short].tolist() == cut_scores[is_short].tolist()
        assert (scores >= cut_scores).all()


def test_one_chunk_at_most_is_a_cut_document_bit_for_bit(reranker):
    pairs = [(QUERY, text) for text in [*SHORT, *LONG]]
    one_chunk = reranker.predict(pairs, long_documents="chunks", max_chunks_per_doc=1)
    assert one_chunk.tolist() == reranker.predict(pairs).tolist()


@pytest.mark.parametrize("policy", ["lowest_senses", "uniform", "paired_tokens"])
def test_the_best_chunk_is_chosen_at_each_alpha(reranker, policy, tmp_path):
    documents, alphas = [*SHORT, *LONG], [1, 0.5, 0]
    chunks = reranker.reading("chunks", max_chunks_per_doc=4, chunk_overlap=6)
    expected = []
    for alpha in alphas:
        controlled = chunks.at(alpha, policy)
        expected.append(scores_by_hand(controlled, QUERY, documents, most=4, overlap=6))
    assert np.ptp(np.array(expected), axis=0).max() > 1e-4
    swept = chunks.sweep(QUERY, documents, alphas, policy)
    assert swept == pytest.approx(np.array(expected), abs=1e-5)
    run, collection = run_of(documents), collection_of(documents)
    pairs = Pairs.from_run(run, collection)
    on_shards = AlphaSweep(chunks, alphas, policy).scores(pairs)
    assert pytest.approx(np.array(expected), abs=1e-5) == on_shards.T
    chunks.cache = SenseCache(tmp_path)
    for alpha, scores in zip(alphas, expected, strict=True):
        ranked = chunks.at(alpha, policy).rerank(run, collection)
        assert list(ranked["q"].values()) == pytest.approx(scores, abs=1e-5)


def test_a_policy_that_rewrites_averages_the_best_chunks_of_each_rendition(without_senses):
    """At alpha = 0 the score is a mean over wordings, each read as a document of its own."""
    document = LONG[2]
    swapped = without_senses.attribute.swap()(document).text
    assert swapped != document
    chunks = without_senses.reading("chunks")
    first, second = chunks.predict([(QUERY, document), (QUERY, swapped)])
    at_zero = chunks.at(0, "renditions").predict([(QUERY, document), (QUERY, swapped)])
    assert at_zero[0] == at_zero[1], "bit for bit"
    assert at_zero[0] == pytest.approx((first + second) / 2, abs=1e-5)
    assert abs(first - second) > 1e-4


@pytest.mark.parametrize(
    ("kind", "policy"),
    [("reranker", "paired_tokens"), ("without_senses", "renditions")],
)
def test_a_certificate_covers_words_of_every_chunk(request, kind, policy, tmp_path):
    documents = [LONG[0], LONG[2], "she saw bread", "bread and fish " * 40]
    chunks = request.getfixturevalue(kind).reading("chunks", chunk_overlap=4)
    certificate = certify(
        chunks.at(0, policy), collection_of(documents), run_of(documents), tmp_path / "chunks"
    )
    by_kind = {part.kind: part for part in certificate.parts}
    assert certificate.kept
    assert by_kind["covered"].candidates == 3
    assert by_kind["covered"].largest < 1e-6


def test_the_work_grows_with_chunks_and_not_with_the_document(make_gpt2, tokenizer):
    encoded_characters = []

    class Counting(PairTokenizer):
        def encode(self, texts):
            encoded_characters.extend(map(len, texts))
            return super().encode(texts)

    scorer = Scorer(make_gpt2(), Counting(tokenizer, 48))
    read = []
    forward = scorer.ranker.forward

    def counting(batch, **options):
        read.extend(batch.lengths)
        return forward(batch, **options)

    scorer.ranker.forward = counting
    reranker = PointwiseReranker(scorer).reading("chunks", max_chunks_per_doc=5)
    work = {}
    for words in (1_000, 100_000):
        encoded_characters.clear()
        read.clear()
        reranker.predict([(QUERY, "bread and fish " * words)])
        work[words] = (len(read), sum(read), sum(encoded_characters))
    scorer.ranker.forward = forward
    assert work[1_000][:2] == work[100_000][:2] == (5, 5 * 48)
    assert work[100_000][2] < 2 * work[1_000][2] < 100_000


def test_documents_that_have_more_chunks_than_are_read_are_counted(reranker, caplog):
    reranker.predict([(QUERY, text) for text in [*SHORT, *LONG]], long_documents="chunks")
    assert "cut" not in caplog.text
    chunks = reranker.reading("chunks", max_chunks_per_doc=2)
    chunks.predict([(QUERY, text) for text in [*SHORT, *LONG]])
    assert "3 of 6 documents are longer than" in caplog.text
    assert "max_chunks_per_doc=2 were read" in caplog.text


def test_cut_documents_are_joined_as_ever(pair_tokenizer):
    pairs = [(QUERY, text) for text in [*SHORT, *LONG]]
    joined = join_pairs(pair_tokenizer, pairs, long_documents=CUT)
    expected = pair_tokenizer.pairs(QUERY, [*SHORT, *LONG])
    assert [ids.tolist() for ids in joined.sequences] == [ids.tolist() for ids in expected]
    assert joined.is_cut == [False] * 3 + [True] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"long_documents": "all"}, "long_documents='all': use one of cut, chunks"),
        ({"max_chunks_per_doc": 2}, "max_chunks_per_doc=2 needs long_documents=chunks"),
        ({"chunk_overlap": 2}, "chunk_overlap=2 needs long_documents=chunks"),
        (
            {"long_documents": "chunks", "max_chunks_per_doc": 0},
            "max_chunks_per_doc=0 must be at least 1",
        ),
        ({"long_documents": "chunks", "chunk_overlap": -1}, "chunk_overlap=-1 must be"),
        ({"long_documents": "chunks", "chunk_overlap": 1.5}, "chunk_overlap=1.5 must be a whole"),
        (
            {"long_documents": "chunks", "chunk_overlap": 25},
            "chunk_overlap=25 must be at most 24, half of the 48 tokens",
        ),
    ],
    ids=str,
)
def test_wrong_values_are_named(reranker, options, message):
    with pytest.raises(ValueError, match=message):
        reranker.rank(QUERY, SHORT, **options)


def test_a_reranker_keeps_what_it_was_told_until_it_is_told_otherwise(reranker):
    chunks = reranker.reading("chunks", 3, 4)
    assert chunks.at(0.5).scorer.long_documents == LongDocuments("chunks", 3, 4)
    assert chunks.reading(chunk_overlap=0).scorer.long_documents == LongDocuments("chunks", 3)
    assert chunks.reading("cut").scorer.long_documents == CUT
    assert reranker.reading() is reranker
