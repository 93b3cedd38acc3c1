"""The synthetic collection: queries, documents, judgements and wording of one split.

Every query asks for an occupation and one or two of its skills. Documents are made for the queries
in turn:

* 28%: the occupation with all asked skills (a fifth of them with one more skill);
* 27%: near misses: the occupation with the asked skill denied (55% of them), the asked skill
  claimed in a related occupation (20%), or the occupation with everyday duties only (25%);
* 45%: outsiders, people of other work who only mention the occupation and the skill.

Grades follow from what a document claims, whichever query it was made for: 3 = the occupation and
all asked skills, 2 = the occupation and one of two asked skills, 1 = the occupation without an
asked skill, or an asked skill in a related occupation, 0 = neither. All documents of grade 1 and
more are judged; of the others, those made for the query and five more.

Wording is drawn by the role for which a document was made, as (male, female, neutral):

* independent (dev, test, and train at skew 0): (0.40, 0.40, 0.20) for all;
* train at skew 1: (0.65, 0.15, 0.20) for documents made to be relevant (the first 28%), (0.25,
  0.50, 0.25) for the others; a skew in between interpolates linearly.

The proportions are exact up to rounding (shuffled quotas, not independent draws). Ids are given
after a shuffle and say nothing about the role.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from backpack_rank.checks import fraction, one_of
from backpack_rank.constructors import Count, Seed, Share
from backpack_rank.data.collection import Collection, MemoryStore, Qrels, Queries
from backpack_rank.data.synthetic.resources import (
    FOLDER,
    SKILLS_EACH,
    Occupation,
    Skill,
    read_lists,
    read_occupations,
)
from backpack_rank.data.synthetic.templates import (
    GENDERS,
    Composer,
    Draft,
    gerund,
    render,
    with_article,
)

OCCUPATIONS = read_occupations(FOLDER / "occupations.yaml")
QUERY_FORMS = read_lists(
    FOLDER / "queries.yaml", ("job", "a_job", "field", "do", "doing", "do2", "doing2")
)

INDEPENDENT = (0.40, 0.40, 0.20)
SKEWED_RELEVANT = (0.65, 0.15, 0.20)
SKEWED_OTHER = (0.25, 0.50, 0.25)
RELEVANT_SHARE, NEAR_SHARE = 0.28, 0.27

FIRST_ID = {"train": 0, "dev": 300_000, "test": 600_000}
MOST_DOCUMENTS = 300_000
MOST_QUERIES = 5_000
DEFAULT_DOCUMENTS = {"train": 3000, "dev": 600, "test": 2000}


@dataclass(frozen=True)
class SplitSettings:
    """Size and skew of one split.

        collection = generate(SplitSettings("test", seed=0, queries=12, documents=80, skew=0.0))

    Raises:
        ValueError: an unknown split, a count out of range, too few documents for the queries, or a
            skew outside [0, 1].
    """

    split: str
    seed: int
    queries: int
    documents: int
    skew: float

    def __post_init__(self) -> None:
        one_of("split", self.split, FIRST_ID)
        if not 1 <= self.queries <= MOST_QUERIES:
            raise ValueError(f"{self.split}: {self.queries} queries; choose 1 to {MOST_QUERIES}")
        if not self.queries <= self.relevant_documents or self.documents > MOST_DOCUMENTS:
            raise ValueError(
                f"{self.split}: {self.documents} documents for {self.queries} queries; choose at "
                f"least {int(self.queries / RELEVANT_SHARE) + 1} and at most {MOST_DOCUMENTS}"
            )
        fraction("skew", self.skew, "; 0 is independent of wording")

    @property
    def relevant_documents(self) -> int:
        return int(self.documents * RELEVANT_SHARE)


@dataclass(frozen=True)
class _Need:
    """What one query asks for."""

    occupation: Occupation
    skills: tuple[Skill, ...]


@dataclass(frozen=True)
class _Made:
    """A document: its draft, the number of the query it was made for, and its wording."""

    draft: Draft
    query: int
    text: str
    gender: str


def generate(settings: SplitSettings) -> Collection:
    """Make one split; equal settings give equal collections in every process."""
    # "embedded" is a former name of the collection: another word here would draw other texts for
    # every seed
    rng = random.Random(f"backpack_rank embedded {settings.seed} {settings.split}")
    needs = _needs(rng, settings.queries)
    texts = _query_texts(rng, needs)
    made = _documents(rng, needs, settings)
    first_id = FIRST_ID[settings.split]
    doc_ids = [f"d{first_id + number:06d}" for number in range(len(made))]
    query_ids = [f"q-{settings.split}-{number:04d}" for number in range(len(needs))]
    queries: Queries = dict(zip(query_ids, texts, strict=True))
    document_texts: dict[str, str] = {}
    groups: dict[str, str] = {}
    for doc_id, document in zip(doc_ids, made, strict=True):
        document_texts[doc_id] = document.text
        groups[doc_id] = document.gender
    return Collection(
        name=f"synthetic/{settings.split}",
        documents=MemoryStore(document_texts),
        queries=queries,
        qrels=_judge(rng, needs, query_ids, made, doc_ids),
        groups=groups,
        depth=20,
    )


def grade(occupation: Occupation, asked: Sequence[Skill], draft: Draft) -> int:
    """The relevance (0 to 3) of a document: the grades at the head of this module."""
    shared = len(set(asked) & set(draft.skills))
    if draft.occupation == occupation:
        if shared == len(asked):
            return 3
        return 2 if shared else 1
    related = draft.occupation is not None and draft.occupation.family == occupation.family
    return 1 if related and shared else 0


def wording(skew: float, relevant: bool) -> tuple[float, float, float]:
    """The shares of male, female and neutral wording of one role at a skew.

    >>> wording(0.0, relevant=True)
    (0.4, 0.4, 0.2)
    """
    full = SKEWED_RELEVANT if relevant else SKEWED_OTHER
    shares = []
    for independent, skewed in zip(INDEPENDENT, full, strict=True):
        shares.append(independent + skew * (skewed - independent))
    male, female, neutral = shares
    return male, female, neutral


_TWO_SKILLS = 0.3
"""Share of queries that ask for two skills."""
_NO_JOB = 0.1
"""Share of the other queries that name the skill alone, without the occupation."""
_EXTRA_SKILL = 0.2
"""Share of relevant documents that claim a skill more than is asked for."""
_OTHER_JUDGED = 5
"""Documents that are judged for a query although they were made for any."""


def _needs(rng: random.Random, count: int) -> list[_Need]:
    """Go round all (occupation, skill) pairs, so that each is asked about equally often."""
    needs: list[_Need] = []
    while len(needs) < count:
        shuffled: dict[Occupation, list[Skill]] = {}
        for occupation in OCCUPATIONS:
            shuffled[occupation] = rng.sample(occupation.skills, SKILLS_EACH)
        for turn in range(SKILLS_EACH):
            for occupation in rng.sample(OCCUPATIONS, len(OCCUPATIONS)):
                skills = [shuffled[occupation][turn]]
                if rng.random() < _TWO_SKILLS:
                    skills.append(_another_skill(rng, occupation, skills))
                needs.append(_Need(occupation, tuple(skills)))
    return needs[:count]


def _another_skill(rng: random.Random, occupation: Occupation, skills: Sequence[Skill]) -> Skill:
    return rng.choice([skill for skill in occupation.skills if skill not in skills])


def _query_texts(rng: random.Random, needs: Sequence[_Need]) -> list[str]:
    # A dictionary, because no two queries may have the same text and their order counts.
    texts: dict[str, None] = {}
    for need in needs:
        text = _query_text(rng, need)
        while text in texts:
            text = _query_text(rng, need)
        texts[text] = None
    return list(texts)


def _query_text(rng: random.Random, need: _Need) -> str:
    if len(need.skills) == 2:
        forms = QUERY_FORMS["two_skills"]
    elif rng.random() < _NO_JOB:
        forms = QUERY_FORMS["one_skill_no_job"]
    else:
        forms = QUERY_FORMS["one_skill"]
    form = rng.choice(forms)
    job = rng.choice(need.occupation.names)
    phrases = [rng.choice(skill) for skill in need.skills]
    return form.format(
        job=job,
        a_job=with_article(job),
        field=need.occupation.field,
        do=phrases[0],
        doing=gerund(phrases[0]),
        do2=phrases[-1],
        doing2=gerund(phrases[-1]),
    )


def _documents(rng: random.Random, needs: Sequence[_Need], settings: SplitSettings) -> list[_Made]:
    composer = Composer(rng)
    skew = settings.skew if settings.split == "train" else 0.0
    relevant = settings.relevant_documents
    near = int(settings.documents * NEAR_SHARE)
    outsiders = settings.documents - relevant - near
    roles = (
        (relevant, _capable, True),
        (near, _near_miss, False),
        (outsiders, _outsider, False),
    )
    seen: set[str] = set()
    made: list[_Made] = []
    for count, write, is_relevant in roles:
        genders = _quotas(rng, wording(skew, is_relevant), count)
        for number, gender in enumerate(genders):
            query = number % len(needs)
            while True:
                # Drawn again until the text is new: two equal documents could have two grades.
                draft = write(rng, composer, needs[query])
                text = render(draft.text, gender)
                if text not in seen:
                    break
            seen.add(text)
            made.append(_Made(draft, query, text, gender))
    rng.shuffle(made)
    return made


def _capable(rng: random.Random, composer: Composer, need: _Need) -> Draft:
    skills = list(need.skills)
    if rng.random() < _EXTRA_SKILL:
        skills.append(_another_skill(rng, need.occupation, skills))
    return composer.capable(need.occupation, skills)


def _near_miss(rng: random.Random, composer: Composer, need: _Need) -> Draft:
    skill = rng.choice(need.skills)
    kind = rng.random()
    if kind < 0.55:
        return composer.lacking(need.occupation, skill)
    if kind < 0.75:
        relatives: list[Occupation] = []
        for other in OCCUPATIONS:
            if other.family == need.occupation.family and other != need.occupation:
                relatives.append(other)
        return composer.capable(rng.choice(relatives), (skill,))
    return composer.busy(need.occupation)


def _outsider(rng: random.Random, composer: Composer, need: _Need) -> Draft:
    return composer.outsider(need.occupation, rng.choice(need.skills))


def _quotas(rng: random.Random, shares: Sequence[float], count: int) -> list[str]:
    """``count`` genders in these shares, rounded by largest remainder, in random order."""
    exact = [share * count for share in shares]
    counts = list(map(int, exact))
    # What rounding down left over goes to the shares that lost most by it, one document each.
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    genders: list[str] = []
    for gender, number in zip(GENDERS, counts, strict=True):
        genders += [gender] * number
    rng.shuffle(genders)
    return genders


def _judge(
    rng: random.Random,
    needs: Sequence[_Need],
    query_ids: Sequence[str],
    made: Sequence[_Made],
    doc_ids: Sequence[str],
) -> Qrels:
    in_family: dict[str, list[int]] = defaultdict(list)
    made_for: dict[int, list[int]] = defaultdict(list)
    for number, document in enumerate(made):
        made_for[document.query].append(number)
        if document.draft.occupation is not None:
            in_family[document.draft.occupation.family].append(number)
    qrels: Qrels = {}
    for query, need in enumerate(needs):
        others = rng.sample(range(len(made)), min(_OTHER_JUDGED, len(made)))
        grades = dict.fromkeys([*made_for[query], *others], 0)
        # Only documents of the same family can have a grade above 0.
        for number in [*in_family[need.occupation.family], *grades]:
            value = grade(need.occupation, need.skills, made[number].draft)
            if value or number in grades:
                grades[number] = value
        qrels[query_ids[query]] = {doc_ids[number]: grades[number] for number in sorted(grades)}
    return qrels


def load_synthetic(
    split: str,
    seed: Seed = 0,
    train_queries: Count = 750,
    dev_queries: Count = 60,
    test_queries: Count = 180,
    documents: Count | None = None,
    skew: Share = 1.0,
) -> Collection:
    """A collection of known bias, made in seconds and without any download.

    >>> collection = load_synthetic("test", test_queries=12, documents=80)
    >>> len(collection.queries), len(collection.documents)
    (12, 80)

    No two splits share a document.

    Args:
        split: ``train``, ``dev`` or ``test``.
        seed: equal seeds give equal texts, ids and judgements on every machine.
        train_queries: queries of the train split, likewise ``dev_queries`` and ``test_queries``.
        documents: of this split; None takes 3000, 600 or 2000. At least 3.6 for each query.
        skew: how strongly relevance goes with male wording in the train split, 0 (not at all) to 1;
            the dev and test splits are always independent of wording. Exact numbers:
            ``backpack_rank.data.synthetic.generator``.

    Returns:
        A collection with graded judgements (0 to 3) and ``groups``, the wording of every document.

    Raises:
        ValueError: an unknown split, a count out of range or a skew outside [0, 1].
    """
    queries = {"train": train_queries, "dev": dev_queries, "test": test_queries}
    one_of("split", split, queries)
    size = DEFAULT_DOCUMENTS[split] if documents is None else documents
    return generate(SplitSettings(split, seed, queries[split], size, skew))
