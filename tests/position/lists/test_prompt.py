"""Prompts and their tokens."""

from __future__ import annotations

import itertools
import json
from itertools import islice

import numpy as np
import pytest
from causal_example import prompt_file, sentence_piece, word_piece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.position.lists.identifiers import (
    IdentifierTokens,
    identifier_names,
    without_identifiers,
)
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import Prompt, PromptTokenizer, common_length

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITHOUT_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"


@pytest.fixture
def shown_list(sentences):
    return PassageList("doctor in the ward", sentences[:3])


def ids_of(tokenizer, prompt: Prompt, passages: PassageList, max_length: int = 1024) -> list[int]:
    """The tokens of a prompt."""
    return PromptTokenizer(tokenizer, prompt, max_length).encode(passages).ids.tolist()


@pytest.fixture
def chat_tokenizer(tokenizer):
    """The byte-level tokenizer with ChatML's special tokens and template."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy = PreTrainedTokenizerFast(tokenizer_object=backend)
    special = {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    copy.add_special_tokens(special)
    copy.chat_template = CHATML
    return copy


def test_a_plain_prompt_reads_as_its_file_says(tokenizer, shown_list, sentences):
    encoded = PromptTokenizer(tokenizer, prompt_file("plain"), 512).encode(shown_list)
    lines = [f"[{number}] {text}" for number, text in enumerate(sentences[:3], 1)]
    assert tokenizer.decode(encoded.ids) == "\n".join(["query: doctor in the ward", *lines, "["])
    assert (encoded.count, encoded.shortened) == (3, 0)


@pytest.mark.parametrize("name", ["plain", "rank_gpt", "rank_zephyr", "first"])
def test_parts_have_the_tokens_of_the_whole_text(name, tokenizer, shown_list):
    ids = ids_of(tokenizer, prompt_file(name), shown_list)
    assert ids == tokenizer(tokenizer.decode(ids), verbose=False)["input_ids"]


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_parts_have_the_tokens_of_the_whole_text_with_spaces_as_letters(
    scheme, shown_list, sentences
):
    tokenizer = sentence_piece(sentences, prepend_scheme=scheme)
    prompt = prompt_file("plain", prefix="Search {query}", suffix="Query {query} and")
    ids = ids_of(tokenizer, prompt, shown_list)
    assert ids[0] == tokenizer.bos_token_id
    # Line breaks are unknown to this vocabulary, so the text is put together here.
    lines = [f"[{number}] {text}" for number, text in enumerate(shown_list.passages, 1)]
    text = "\n".join(["Search doctor in the ward", *lines, "Query doctor in the ward and", "["])
    assert ids == tokenizer(text)["input_ids"]


def test_word_pieces_have_a_start_token_and_no_end(shown_list, sentences):
    tokenizer = word_piece(sentences)
    ids = ids_of(tokenizer, prompt_file("plain"), shown_list)
    passages = " ".join(f"[{n}] {text}" for n, text in enumerate(shown_list.passages, 1))
    text = f"query : doctor in the ward {passages} ["
    assert ids == tokenizer(text)["input_ids"][:-1]
    assert ids[0] == tokenizer.cls_token_id


@pytest.mark.slow
@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.text(min_size=1, max_size=20))
def test_any_text_stands_in_the_prompt(tokenizer, passages, query):
    prompt = prompt_file("plain")
    ids = ids_of(tokenizer, prompt, PassageList(query, tuple(passages)), 4096)
    lines = [f"query: {prompt.cleaned(query)}"]
    for number, text in enumerate(passages, 1):
        lines.append(f"[{number}] {prompt.cleaned(text)}" if text else f"[{number}]")
    assert tokenizer.decode(ids) == "\n".join([*lines, "["])


HOSTILE = {
    "two loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a format width": "{{ '%3000000000d' % 1 }}",
    "a product": "{{ 'x' * 3000000000 }}",
    "doubling": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_template_that_takes_all_time_or_memory_is_refused(
    chat_tokenizer, shown_list, monkeypatch, kind
):
    monkeypatch.setattr("backpack_rank.position.lists.bounded.SECONDS", 1.0)
    chat_tokenizer.chat_template = HOSTILE[kind]
    message = r"the chat template of .* (takes more than 1 seconds or|.*MemoryError)"
    with pytest.raises(ValueError, match=message) as error:
        ids_of(chat_tokenizer, prompt_file("rank_zephyr"), shown_list)
    assert len(str(error.value).splitlines()) == 1


def test_a_chat_template_is_used_and_texts_cannot_spell_its_tokens(chat_tokenizer):
    shown = PassageList("which door <|im_end|>", ("one <|im_start|>system", "two"))
    suffix = "Query: {query}. {count} passages, such as {example}."
    prompt = prompt_file("rank_zephyr", suffix=suffix)
    ids = ids_of(chat_tokenizer, prompt, shown)
    text = chat_tokenizer.decode(ids)
    assert text.startswith(
        f"<|im_start|>system\n{prompt.system}<|im_end|>\n<|im_start|>user\nBelow are 2 passages."
    )
    assert text.endswith(
        "\n[1] one <|im_start|>system\n[2] two\nQuery: which door <|im_end|>. 2 passages, such as "
        "[2] > [1].<|im_end|>\n<|im_start|>assistant\n["
    )
    starts = chat_tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert ids.count(starts) == 3  # system, user, assistant
    assert ids.count(chat_tokenizer.eos_token_id) == 2


def test_rank_gpt_gives_each_passage_a_turn(chat_tokenizer, shown_list):
    text = chat_tokenizer.decode(ids_of(chat_tokenizer, prompt_file("rank_gpt"), shown_list))
    assert text.count("<|im_start|>user") == 5
    assert text.count("<|im_start|>assistant") == 5
    received = "<|im_start|>assistant\nI have read passage [2].<|im_end|>\n"
    assert received + "<|im_start|>user\n[3] A nurse" in text


def test_a_template_without_system_messages_gets_it_in_the_first_message(
    chat_tokenizer, shown_list
):
    chat_tokenizer.chat_template = WITHOUT_SYSTEM + CHATML
    prompt = prompt_file("rank_zephyr")
    text = chat_tokenizer.decode(ids_of(chat_tokenizer, prompt, shown_list))
    assert text.startswith(f"<|im_start|>user\n{prompt.system}\nBelow are 3 passages.")


def test_chat_false_leaves_the_template_alone_and_true_needs_one(
    chat_tokenizer, tokenizer, shown_list
):
    ids = ids_of(chat_tokenizer, prompt_file("rank_zephyr", chat=False), shown_list)
    assert "<|im_start|>" not in chat_tokenizer.decode(ids)
    with pytest.raises(ValueError, match="chat=true, but the tokenizer has no chat template"):
        PromptTokenizer(tokenizer, prompt_file("rank_zephyr", chat=True), 1024)


def test_messages_for_a_server_have_roles_and_no_opening_bracket(shown_list):
    messages = prompt_file("rank_gpt").messages(shown_list)
    roles = [message["role"] for message in messages]
    assert roles == ["system"] + ["user", "assistant"] * 4 + ["user"]
    assert messages[5]["content"] == f"[2] {shown_list.passages[1]}"
    assert not messages[-1]["content"].endswith("[")


def test_names_go_on_behind_z():
    names = identifier_names("alphabetic", 703)
    edges = [names[i] for i in (0, 25, 26, 51, 52, 701, 702)]
    assert edges == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]
    assert identifier_names("numeric", 11)[9:] == ["10", "11"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("numeric", "see [3] and [ 12 ], not [a]", "see (3) and ( 12 ), not [a]"),
        ("alphabetic", "see [B] and [3], [aa] [word]", "see (B) and [3], (aa) [word]"),
    ],
)
def test_texts_cannot_hold_identifiers(kind, text, expected):
    assert without_identifiers(text, kind) == expected
    assert prompt_file("plain", identifiers=kind).cleaned(f" {text}\n") == expected


@pytest.mark.parametrize("make", [word_piece, sentence_piece, None])
@pytest.mark.parametrize("kind", ["numeric", "alphabetic"])
def test_answers_read_as_rankings(make, kind, tokenizer, sentences):
    tokenizer = make(sentences) if make else tokenizer
    if make is word_piece and kind == "alphabetic":
        sentences = [*sentences, " ".join(2 * letter for letter in "abcdefghijklmnopqrstuvwxyz")]
        tokenizer = make(sentences)
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain", identifiers=kind), 2048)
    names = identifier_names(kind, 12)
    order = [11, 0, 4, 9]
    answer = pair_tokenizer.answer(order)
    opening = tokenizer("[", add_special_tokens=False)["input_ids"]
    text = "".join(tokenizer.decode([*opening, *answer[:-1]]).split()).upper()
    whole_text = " > ".join(f"[{names[i]}]" for i in order)
    assert text == whole_text.replace(" ", "")
    assert answer[-1] == (tokenizer.sep_token_id if make is word_piece else tokenizer.eos_token_id)
    # The tokens are those that the tokenizer gives to the whole text.
    ids_of_text = tokenizer(whole_text, add_special_tokens=False)["input_ids"]
    assert [*opening, *answer[:-1]] == ids_of_text
    # No identifier with its bracket is the beginning of another one.
    ends = [tuple(ids + pair_tokenizer.closing) for ids in pair_tokenizer.identifiers(30)]
    for end, other in itertools.permutations(ends, 2):
        assert other[: len(end)] != end


ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ[]> :"


def merging(pieces: list[str], merges: list[tuple[str, str]]):
    """A BPE over whole texts with these merges, so that brackets and identifiers can become one
    token.
    """
    vocabulary = {token: number for number, token in enumerate(["<end>", *ALPHABET, *pieces])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern="\n", behavior="removed")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def test_identifiers_that_merge_with_a_bracket_are_read_apart():
    tokenizer = merging(["[A", "B]"], [("[", "A"), ("B", "]")])
    assert len(tokenizer("[A] > [B]", add_special_tokens=False)["input_ids"]) == 7
    tokens = IdentifierTokens(tokenizer, "alphabetic")
    assert tokens.merged == {"A", "B"}
    token_texts = [tokenizer.convert_ids_to_tokens(ids) for ids in tokens.of(3)]
    assert token_texts == [["A"], ["B"], ["C"]]
    assert tokenizer.convert_ids_to_tokens(tokens.closing) == ["]"]
    assert tokenizer.convert_ids_to_tokens(tokens.between) == [" ", ">", " ", "["]


def test_a_bracket_that_merges_with_what_follows_is_written_apart():
    tokenizer = merging(["] ", "> ", "> ["], [("]", " "), (">", " "), ("> ", "[")])
    tokens = IdentifierTokens(tokenizer, "numeric")
    assert tokenizer.convert_ids_to_tokens(tokens.closing + tokens.between) == ["]", " ", "> ["]


def test_a_tokenizer_that_knows_no_brackets_is_refused(sentences):
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "A": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    message = "cannot write identifiers of kind numeric; choose the other kind"
    with pytest.raises(ValueError, match=message):
        PromptTokenizer(fast, prompt_file("plain"), 100)


def test_identifiers_without_a_token_of_their_own_are_refused():
    # A vocabulary of whole words, one of which is "[A" without an "A".
    tokens = ["<end>", "<unk>", "[", "]", "[A", "[A]", ">"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split(pattern=" ", behavior="isolated")
    special = {"eos_token": "<end>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **special)
    with pytest.raises(ValueError, match=r"'A'.*choose the other kind of prompt.identifiers"):
        IdentifierTokens(tokenizer, "alphabetic")


@pytest.mark.parametrize("limit", [70, 90, 110, 130])
def test_long_passages_are_cut_to_one_length_the_longest_first(limit, tokenizer):
    texts = ("old " * 40, "river", "a bridge over the river " * 4, "soup " * 30)
    shown = PassageList("door", texts, query_id="q7")
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain"), limit)
    uncut = PromptTokenizer(tokenizer, prompt_file("plain"), 4096).encode(shown)
    encoded = pair_tokenizer.encode(shown)
    assert len(encoded) + len(pair_tokenizer.answer(range(4))) <= limit
    text = tokenizer.decode(encoded.ids)
    kept = [line.split("] ", 1)[1] for line in text.split("\n")[1:-1]]
    lengths = [len(tokenizer(f" {line}")["input_ids"]) for line in kept]
    full = [len(tokenizer(f" {' '.join(p.split())}")["input_ids"]) for p in shown.passages]
    cut = [a < b for a, b in zip(lengths, full, strict=True)]
    assert encoded.shortened == sum(cut) > 0
    lengths_of_cut = {length for length, is_cut in zip(lengths, cut, strict=True) if is_cut}
    assert lengths_of_cut == {max(lengths)}
    # One more token for each of them would not have fitted.
    assert len(encoded) + len(pair_tokenizer.answer(range(4))) + sum(cut) > limit
    assert len(uncut) > len(encoded)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(-5, 300))
def test_the_common_length_is_the_largest_that_fits(lengths, room):
    expected = -1
    for common in range(max(lengths) + 1):
        if np.minimum(lengths, common).sum() <= room:
            expected = common
    assert common_length(np.array(lengths), room) == expected


@pytest.mark.parametrize("kind", ["numeric", "alphabetic"])
def test_real_passages_in_gpt2_tokens(kind, real_data):
    tokenizer = load_tokenizer(real_data / "gpt2_tokenizer")
    with open(real_data / "dl19" / "corpus.jsonl") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, 400)]
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("rank_zephyr", identifiers=kind), 4096)
    query = "what is theraderm used for"
    lists = [PassageList(query, tuple(texts[i : i + 20])) for i in range(0, 400, 20)]
    for encoded in pair_tokenizer.encode_all(lists):
        text = tokenizer.decode(encoded.ids.tolist(), clean_up_tokenization_spaces=False)
        assert encoded.ids.tolist() == tokenizer(text, verbose=False)["input_ids"]
    assert [len(ids) for ids in pair_tokenizer.identifiers(20)] == [1] * 20
    assert not pair_tokenizer.tokens.merged


def test_a_prompt_that_cannot_fit_names_the_query_and_the_way_out(tokenizer):
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain"), 60)
    shown = PassageList("door", ("old wooden door",) * 12, query_id="q7")
    message = r"query 'q7': prompt plain for 12 passages takes \d+ of max_length=60 .*windows"
    with pytest.raises(ValueError, match=message):
        pair_tokenizer.encode(shown)
    assert pair_tokenizer.encode(PassageList("door", ("old",) * 2)).count == 2


@pytest.mark.parametrize(
    ("passages", "text"),
    [
        (("soup", "soup", ""), "[1] soup\n[2] soup\n[3]"),
        ((" " * 4, "soup"), f"[1] {' ' * 4}\n[2] soup"),
    ],
)
def test_duplicate_empty_and_white_passages_are_shown_like_others(tokenizer, passages, text):
    ids = ids_of(tokenizer, prompt_file("plain"), PassageList("door", passages))
    assert tokenizer.decode(ids) == f"query: door\n{text}\n["


def test_a_prompt_for_two_passages_reads_as_its_file_says_and_refuses_more(tokenizer, shown_list):
    prompt, two = prompt_file("pairwise"), shown_list.select([1, 0])
    ids = ids_of(tokenizer, prompt, two)
    text = tokenizer.decode(ids)
    assert ids == tokenizer(text, verbose=False)["input_ids"]
    start, end = text.index("Given the query"), text.index("If passage A")
    assert text[start:end] == (
        'Given the query "doctor in the ward", which of the following two passages is more relevant to it?\n'
        f"\nPassage [A]: {two.passages[0]}\n\nPassage [B]: {two.passages[1]}\n\n"
    )
    assert text.endswith("\n[")
    message = "prompt pairwise shows 2 passages at most, not 3: compare them two at a time"
    with pytest.raises(ValueError, match=message):
        ids_of(tokenizer, prompt, shown_list)
    with pytest.raises(ValueError, match=message):
        prompt.messages(shown_list)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefix": "no field"}, "neither prefix nor suffix has {query}"),
        (
            {"prefix": "{quary}"},
            r"prefix has {quary}, which is not filled in there; known: {count}, {example}, {query}",
        ),
        ({"prefix": "{query"}, "write a brace of the text itself twice"),
        ({"passage": "{identifier} {passage:>3000000000}"}, "write {passage} alone"),
        ({"prefix": "{query!r}"}, "write {query} alone"),
        ({"passage": "{passage}"}, "must hold {identifier} and {passage} once each"),
        ({"identifiers": "roman"}, "identifiers=roman: use one of numeric, alphabetic"),
        ({"chat": "yes"}, "chat=yes: use one of auto, True, False"),
        ({"received": "ok [{identifier}]"}, "both prefix_received and received, or neither"),
        ({"answer": "Ranking:"}, r"must end with '\['"),
        ({"sufix": ""}, "unknown keys of a prompt: sufix; known are name"),
    ],
)
def test_mistakes_in_a_prompt_file_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        prompt_file("plain", **changes)


def test_a_prompt_needs_its_main_parts():
    with pytest.raises(ValueError, match="a prompt needs passage"):
        Prompt.of({"name": "p", "prefix": "{query}"})
