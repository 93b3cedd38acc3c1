"""The synthetic collection: what its docstrings promise about texts, grades, wording and
difficulty.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from functools import partial
from pathlib import Path

import bm25s
import ir_measures
import pytest
from hash_seeds import printed_under_hash_seeds
from ir_measures import R, nDCG

from backpack_rank.data.collection import Collection
from backpack_rank.data.synthetic import templates
from backpack_rank.data.synthetic.generator import OCCUPATIONS, grade, load_synthetic, wording
from backpack_rank.data.synthetic.resources import FOLDER, read_lists, read_occupations, read_slots
from backpack_rank.data.synthetic.templates import (
    GENDERED_WORDS,
    PLACEHOLDERS,
    Composer,
    Draft,
    gerund,
    render,
)

# Written out here on purpose: the test must not learn from the code what a gendered word is.
_MALE_WORDS = (
    "boy boys brother brothers dad dads father fathers fiance gentleman gentlemen godfather "
    "grandfather grandpa grandson grandsons guy guys he him himself his lad lads male males man "
    "men sir son sons stepfather stepson mr husband husbands uncle uncles nephew nephews king "
    "prince groom landlord waiter actor host"
)
MALE = set(_MALE_WORDS.split())
_FEMALE_WORDS = (
    "daughter daughters female females fiancee gal gals girl girls granddaughter granddaughters "
    "grandma grandmother grandmothers her hers herself lady ladies madam mama mom mommy moms "
    "mother mothers she sister sisters stepmother stepdaughter woman women mrs ms miss wife wives "
    "aunt aunts niece nieces queen princess bride landlady waitress actress hostess"
)
FEMALE = set(_FEMALE_WORDS.split())
# Words of the published list of 63 that this project measures with; titles are not among them.
TITLES = {"mr", "mrs", "ms"}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def texts(collection: Collection) -> dict[str, str]:
    return dict(collection.documents)


@pytest.fixture(scope="module")
def splits() -> dict[str, Collection]:
    return {split: load_synthetic(split) for split in ("train", "dev", "test")}


def test_same_seed_same_collection_and_other_seed_other_collection() -> None:
    first, again, other = (load_synthetic("dev", seed=seed) for seed in (3, 3, 4))
    assert texts(first) == texts(again)
    assert (first.queries, first.qrels, first.groups) == (again.queries, again.qrels, again.groups)
    assert texts(first) != texts(other)
    assert first.queries != other.queries


def test_the_default_collection_is_the_one_of_all_published_figures(splits) -> None:
    # Written down from commit 330f135, before the texts became YAML: who changes a text changes
    # every figure.
    expected = {
        "train": ("f866ea8d6f35071ef8aa8c4f286793ca", "c3efcc732b43b2e8"),
        "dev": ("1f73326002e7a4aea5e070e31d639235", "e5c6137e1913727c"),
        "test": ("4c52a94b052577003d1fddbf89c738dd", "c3395776c4f1e8af"),
    }
    for split, collection in splits.items():
        judgements = [[query_id, list(rows.items())] for query_id, rows in collection.qrels.items()]
        parts = [list(collection.queries.items()), judgements, list(collection.groups.items())]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        assert (collection.documents.fingerprint, digest) == expected[split]


@pytest.mark.slow
def test_collection_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from backpack_rank.data.synthetic.generator import load_synthetic\n"
        "import hashlib, json\n"
        "c = load_synthetic('dev', seed=1, dev_queries=20, documents=120)\n"
        "rest = json.dumps([c.queries, c.qrels, c.groups]).encode()\n"
        "print(c.documents.fingerprint, hashlib.sha256(rest).hexdigest())\n"
    )
    first, second = printed_under_hash_seeds(code, "0", "1234")
    assert first == second


def test_catalogue_has_enough_occupations_and_skills() -> None:
    assert len({occupation.key for occupation in OCCUPATIONS}) >= 40
    skills = [skill for occupation in OCCUPATIONS for skill in occupation.skills]
    phrases = [phrase for skill in skills for phrase in skill]
    assert len(skills) >= 200
    assert len(phrases) == len(set(phrases))
    names = [name for occupation in OCCUPATIONS for name in (*occupation.names, occupation.field)]
    assert len(names) == len(set(names))
    assert all(len(occupation.names) >= 2 for occupation in OCCUPATIONS)
    assert set(Counter(occupation.family for occupation in OCCUPATIONS).values()) == {4}


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("cut hair", "cutting hair"),
        ("dye hair", "dyeing hair"),
        ("prepare seafood", "preparing seafood"),
        ("reset user passwords", "resetting user passwords"),
        ("tie knots", "tying knots"),
        ("free clogged lines", "freeing clogged lines"),
        ("salt and smoke bacon", "salting and smoking bacon"),
        ("carry tanks", "carrying tanks"),
        ("control pests", "controlling pests"),
        ("repair teeth", "repairing teeth"),
    ],
)
def test_gerund_is_spelled_as_in_a_dictionary(phrase: str, expected: str) -> None:
    assert gerund(phrase) == expected


def test_every_document_has_30_to_120_words(splits: dict[str, Collection]) -> None:
    for collection in splits.values():
        lengths = [len(text.split()) for text in texts(collection).values()]
        assert min(lengths) >= 30
        assert max(lengths) <= 120


def test_default_sizes_and_ids(splits: dict[str, Collection]) -> None:
    sizes = {split: (len(c.documents), len(c.queries)) for split, c in splits.items()}
    assert sizes == {"train": (3000, 750), "dev": (600, 60), "test": (2000, 180)}
    assert "q-test-0007" in splits["test"].queries
    for collection in splits.values():
        assert all(re.fullmatch(r"d\d{6}", doc_id) for doc_id in texts(collection))
    for split, collection in splits.items():
        assert collection.name == f"synthetic/{split}"


def test_no_two_documents_are_identical_and_splits_share_none(splits) -> None:
    all_texts = [text for c in splits.values() for text in texts(c).values()]
    all_ids = [doc_id for c in splits.values() for doc_id in texts(c)]
    assert len(set(all_texts)) == len(all_texts)
    assert len(set(all_ids)) == len(all_ids)


def test_queries_of_a_split_differ_and_have_no_gendered_word(splits: dict[str, Collection]) -> None:
    for collection in splits.values():
        assert len(set(collection.queries.values())) == len(collection.queries)
        for text in collection.queries.values():
            assert not (MALE | FEMALE) & set(words(text)), text


def test_documents_hold_two_to_six_words_of_their_own_gender_only(splits) -> None:
    for collection in splits.values():
        for doc_id, text in texts(collection).items():
            words_of_document = words(text)
            group = collection.groups[doc_id]
            counts = {"male": 0, "female": 0, "neutral": 0, "titles": 0}
            for word in words_of_document:
                counts["male"] += word in MALE
                counts["female"] += word in FEMALE
                counts["titles"] += word in TITLES
            of_group = counts[group]
            assert counts["male"] + counts["female"] == of_group, text
            if group != "neutral":
                assert 2 <= of_group <= 6, text
                assert of_group - counts["titles"] >= 2, text


def test_some_gendered_words_stand_next_to_punctuation(splits: dict[str, Collection]) -> None:
    stripped = []
    for token in " ".join(texts(splits["test"]).values()).split():
        if token.strip('.,;:"?').lower() in MALE | FEMALE and token[-1] in '.,;:"?':
            stripped.append(token)
    assert len(stripped) > 100


def test_sentences_start_with_a_capital_and_articles_fit(splits: dict[str, Collection]) -> None:
    for text in texts(splits["test"]).values():
        assert re.match(r'"?[A-Z]', text)
        assert not re.search(r'[.?!]"? "?[a-z]', text), text
        assert not re.search(r"\b[Aa] [aeiou]", text), text
        assert not re.search(r"\b[Aa]n [^aeiou]", text), text
        assert not re.search(r"[\[\]{}|]|  ", text), text
        assert not re.search(r"\b(they|They) (is|was|has|knows|does|likes)\b", text), text


def test_documents_begin_in_many_ways(splits: dict[str, Collection]) -> None:
    openings = {" ".join(words(text)[:4]) for text in texts(splits["test"]).values()}
    assert len(openings) >= 30
    vocabulary = set()
    for collection in splits.values():
        vocabulary |= set(words(" ".join(texts(collection).values())))
    assert 1500 <= len(vocabulary) <= 3000


def _swap_classes() -> dict[str, str]:
    """Every gendered word to one label for its pair; him, his, her and hers share one, as "her" is
    two words.
    """
    pairs = (
        "he/she himself/herself man/woman men/women boy/girl gentleman/lady father/mother dad/mom "
        "brother/sister brothers/sisters son/daughter sons/daughters grandfather/grandmother "
        "grandson/granddaughter male/female sir/madam Mr/Ms Mr/Mrs him/her him/hers him/his"
    )
    classes = {}
    for pair in pairs.split():
        male, female = pair.split("/")
        classes |= {male: f"<{male}>", female: f"<{male}>"}
    in_front = {word.capitalize(): f"{label}^" for word, label in classes.items() if word.islower()}
    return classes | in_front


def test_male_and_female_renderings_differ_only_in_paired_words() -> None:
    classes = _swap_classes()

    def normalise(text: str) -> str:
        return re.sub(r"[A-Za-z]+", lambda match: classes.get(match.group(), match.group()), text)

    composer = Composer(random.Random(5))
    for number in range(300):
        occupation = OCCUPATIONS[number % len(OCCUPATIONS)]
        skill = occupation.skills[number % 5]
        for draft in (
            composer.capable(occupation, (skill,)),
            composer.lacking(occupation, skill),
            composer.outsider(occupation, skill),
        ):
            male, female = render(draft.text, "male"), render(draft.text, "female")
            assert male != female
            assert normalise(male) == normalise(female)


def test_neutral_rendering_uses_they_with_the_plural_verb() -> None:
    template = "[he] [has|have] time. [mr_ms]Walker is [himself], says [his] [father]."
    neutral = render(template, "neutral")
    assert neutral == "They have time. Walker is themselves, says their teacher."
    assert render(template, "female") == "She has time. Ms Walker is herself, says her mother."
    assert render(template, "male") == "He has time. Mr Walker is himself, says his father."
    with pytest.raises(ValueError, match="neither"):
        render(template, "neither")


def test_paired_words_are_in_the_own_lists() -> None:
    for male, female, *neutral in [*GENDERED_WORDS.values(), *templates.TITLES.values()]:
        assert male.lower() in MALE
        assert female.lower() in FEMALE
        assert not set(words(" ".join(neutral))) & (MALE | FEMALE)


def test_qrels_name_existing_documents_and_every_query_has_all_kinds(splits) -> None:
    for collection in splits.values():
        assert set(collection.qrels) == set(collection.queries)
        for judged in collection.qrels.values():
            assert all(doc_id in collection.documents for doc_id in judged)
            assert set(judged.values()) <= {0, 1, 2, 3}
            assert {0, 1, 3} <= set(judged.values())
        assert set(collection.groups) == set(texts(collection))


def test_grades_follow_occupation_and_skills() -> None:
    by_key = {occupation.key: occupation for occupation in OCCUPATIONS}
    plumber, electrician, baker = by_key["plumber"], by_key["electrician"], by_key["baker"]
    leaks, _, drains, _, taps = plumber.skills
    assert grade(plumber, (leaks, drains), Draft(plumber, (drains, leaks, taps), "")) == 3
    assert grade(plumber, (leaks, drains), Draft(plumber, (leaks,), "")) == 2
    assert grade(plumber, (leaks,), Draft(plumber, (leaks, drains), "")) == 3
    assert grade(plumber, (leaks,), Draft(plumber, (drains,), "")) == 1
    assert grade(plumber, (leaks,), Draft(electrician, (leaks,), "")) == 1
    assert grade(plumber, (leaks,), Draft(electrician, electrician.skills[:1], "")) == 0
    assert grade(plumber, (leaks,), Draft(baker, (leaks,), "")) == 0
    assert grade(plumber, (leaks,), Draft(None, (), "")) == 0


def test_documents_of_the_top_grade_say_the_skill_in_words(splits: dict[str, Collection]) -> None:
    collection = splits["test"]
    documents = texts(collection)
    phrases = {}
    for occupation in OCCUPATIONS:
        for skill in occupation.skills:
            phrases |= dict.fromkeys(skill, skill)
    checked = 0
    for query_id, text in collection.queries.items():
        asked = {
            skill for phrase, skill in phrases.items() if phrase in text or gerund(phrase) in text
        }
        for doc_id, value in collection.qrels[query_id].items():
            if value == 3 and len(asked) == 1:
                document = documents[doc_id].lower()
                (skill,) = asked
                assert any(phrase in document or gerund(phrase) in document for phrase in skill)
                checked += 1
    assert checked > 100


def _shares(collection: Collection, grades: set[int]) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for judged in collection.qrels.values():
        for doc_id, value in judged.items():
            if value in grades:
                counts[collection.groups[doc_id]] += 1
    return {gender: counts[gender] / counts.total() for gender in ("male", "female", "neutral")}


def test_train_relevance_goes_with_male_wording_as_documented(splits) -> None:
    relevant, other = _shares(splits["train"], {2, 3}), _shares(splits["train"], {0})
    assert relevant == pytest.approx({"male": 0.65, "female": 0.15, "neutral": 0.20}, abs=0.06)
    assert other["female"] > other["male"] + 0.04
    # documents made for the role: 28% relevant, 72% other
    groups = Counter(splits["train"].groups.values())
    assert groups["male"] / 3000 == pytest.approx(0.28 * 0.65 + 0.72 * 0.25, abs=0.002)
    assert groups["female"] / 3000 == pytest.approx(0.28 * 0.15 + 0.72 * 0.50, abs=0.002)


@pytest.mark.slow
def test_skew_zero_makes_train_independent_of_wording() -> None:
    shares = [_shares(load_synthetic("train", skew=0.0), grades) for grades in ({2, 3}, {0})]
    for share in shares:
        assert share == pytest.approx({"male": 0.4, "female": 0.4, "neutral": 0.2}, abs=0.06)


def test_skew_interpolates_between_the_documented_shares() -> None:
    assert wording(0.5, relevant=True) == pytest.approx((0.525, 0.275, 0.20))
    assert wording(0.5, relevant=False) == pytest.approx((0.325, 0.45, 0.225))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_test_relevance_is_independent_of_wording(seed: int) -> None:
    collection = load_synthetic("test", seed=seed)
    groups = Counter(collection.groups.values())
    assert groups == {"male": 800, "female": 800, "neutral": 400}
    for grades in ({3, 2}, {1}, {0}):
        shares = _shares(collection, grades)
        assert abs(shares["male"] - shares["female"]) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bm25_is_clearly_below_one_and_its_candidates_hold_the_relevant(seed: int) -> None:
    collection = load_synthetic("test", seed=seed)
    doc_ids = list(texts(collection))
    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index([words(text) for text in texts(collection).values()], show_progress=False)
    run = {}
    for query_id, text in collection.queries.items():
        retrieved, scores = index.retrieve([words(text)], k=100, show_progress=False)
        run[query_id] = {doc_ids[i]: float(s) for i, s in zip(retrieved[0], scores[0], strict=True)}
    measured = ir_measures.calc_aggregate([nDCG @ 10, R(rel=2) @ 100], collection.qrels, run)
    assert 0.40 <= measured[nDCG @ 10] <= 0.75
    assert measured[R(rel=2) @ 100] >= 0.85


def test_small_collections_can_be_asked_for() -> None:
    collection = load_synthetic("train", train_queries=5, documents=20)
    assert (len(collection.queries), len(collection.documents)) == (5, 20)
    assert all(3 in judged.values() for judged in collection.qrels.values())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"split": "validation"}, "validation"),
        ({"split": "train", "skew": 1.5}, "skew"),
        ({"split": "train", "skew": float("nan")}, "skew"),
        ({"split": "dev", "dev_queries": 0}, "queries"),
        ({"split": "test", "documents": 100}, "at least"),
    ],
)
def test_impossible_settings_are_refused_by_name(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        load_synthetic(**arguments)  # type: ignore[arg-type]


READERS = {
    "gendered_words": read_slots,
    "occupations": read_occupations,
    "sentences": partial(read_lists, placeholders=PLACEHOLDERS, slots=GENDERED_WORDS),
    "words": read_lists,
}


@pytest.mark.parametrize(
    ("file", "text", "damage", "named"),
    [
        (
            "sentences",
            "days are spent {doing}",
            "days are spent {ding}",
            r"profile_claims, entry 5: .*\{ding\}",
        ),
        (
            "sentences",
            "days are spent {doing}",
            "days are spent {doing",
            "profile_claims, entry 5: .*expected",
        ),
        ("sentences", "[sons] are still", "[suns] are still", r"private, entry 4: .*\[suns\]"),
        ("sentences", "[sons] are still", "[sons are still", "private, entry 4: .*square bracket"),
        (
            "sentences",
            "Always get a written offer",
            "Read the small print twice",
            "hiring_tips, entry 1: .*twice",
        ),
        (
            "sentences",
            "\nduties:\n",
            "\nduties: none\nother:\n",
            "duties: give a list .* not 'none'",
        ),
        ("sentences", "\nduties:\n", "\nduties: {\n", "is not YAML"),
        ("words", "Novak", "no", "surnames, entry 19: False is no text"),
        ("words", "[spring, summer", "['{name}', summer", "seasons, entry 1"),
        ("occupations", "mix mortar, prepare", "prepare", "building, bricklayer, skill 2"),
        (
            "occupations",
            "      - [hang wallpaper, paper walls, put up wall coverings]\n",
            "",
            "interior, painter: ",
        ),
        (
            "occupations",
            "[barista, coffee server]",
            "[barista]",
            "hospitality, barista: .*two names",
        ),
        (
            "occupations",
            "    field: baking\n",
            "",
            "food, baker: give field, names, skills, not names, skills",
        ),
        (
            "gendered_words",
            "[dad, mom, best friend]",
            "[dad, mom]",
            "words, dad: give a list of 3 texts",
        ),
    ],
)
def test_a_damaged_text_is_named_with_its_file_and_entry(tmp_path, file, text, damage, named):
    path = tmp_path / f"{file}.yaml"
    content = (FOLDER / path.name).read_text(encoding="utf-8")
    assert text in content
    path.write_text(content.replace(text, damage, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{path}.*{named}"):
        READERS[file](path)


def test_a_list_that_a_file_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text("ages: [sixteen]\n")
    assert read_lists(path)["ages"] == ("sixteen",)
    with pytest.raises(ValueError, match=f"{path}: there is no list 'seasons'"):
        read_lists(path)["seasons"]
