"""Which measures of fairness are taken, and every choice that has to stand beside their values."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.checks import located
from backpack_rank.constructors import (
    Called,
    Count,
    CountOrZero,
    Length,
    Name,
    Note,
    OneOf,
    PathText,
    Range,
    checked,
)
from backpack_rank.data.collection import Collection, DocumentStore, Qrels, Run
from backpack_rank.data.run_order import TIES
from backpack_rank.evaluation.document_groups import CROSS, WORDS, DocumentGroups
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.group_exposure import (
    RELEVANT,
    TARGETS,
    UNIFORM,
    GroupExposure,
)
from backpack_rank.evaluation.group_files import GroupSource
from backpack_rank.evaluation.group_measures import GroupMeasure
from backpack_rank.evaluation.magnitudes import (
    MAGNITUDES,
    TOKENIZERS,
    GroupMagnitudes,
    default_sign,
    document_groups,
    parse_sign,
    sign_in_words,
)
from backpack_rank.evaluation.measure import FairnessMeasure
from backpack_rank.evaluation.measure_names import (
    FAIRNESS,
    FAIRNESS_EXAMPLES,
    parse_measures,
)
from backpack_rank.evaluation.ranked_documents import top_documents
from backpack_rank.evaluation.results import PerQuery, RunInfo
from backpack_rank.evaluation.word_measures import WordMeasure

CUTOFFS = (5, 10, 20, 30, 40)
KINDS = ("tf", "tf-paper", "bool")
_BY_FAMILY = {measure.family: measure for measure in FAIRNESS}
_OF_KINDS = [measure for measure in _BY_FAMILY.values() if "magnitude" in measure.POSITIONAL]
_OTHERS = [measure for measure in _BY_FAMILY.values() if measure not in _OF_KINDS]
WORD_FAMILIES = (
    *(measure.family for measure in _OF_KINDS),
    "parts",
    *(measure.family for measure in _OTHERS if isinstance(measure, WordMeasure)),
)
FAMILIES = tuple(dict.fromkeys([*WORD_FAMILIES, *_BY_FAMILY]))
"""Of the option: each measure, and ``parts``, those of magnitudes of each group alone."""
Cutoff = Annotated[int, Range(least=1, most=1_000_000)]
"""Places of a ranking; every one of them has a number in memory."""
Target = (
    Annotated[str, OneOf(TARGETS)]
    | Annotated[
        Mapping[str, Any],
        Length(1),
        Called("a share for each group, such as {female:0.5,male:0.5}"),
    ]
)


@checked("bias")
@dataclass(frozen=True)
class FairnessMeasures:
    """Measures runs and states, beside the values, every choice behind them.

        bias = FairnessMeasures(cutoffs=[10])
        magnitudes = bias.magnitudes(bias.documents([run]), collection.documents)
        values = bias.measure(run, magnitudes, background=candidates)

    Presets are the files of ``conf/bias``: ``default`` counts 32 + 32 words on word tokens;
    ``rekabsaz2020`` and ``rekabsaz2021`` are the published code of RaB / ARaB and of FaiRR /
    NFaiRR.

    Attributes:
        preset: name of these choices, as the report states it.
        lexicon: word list, a name in ``lexicons/`` or a path; two or more groups.
        tokenizer: ``word`` or ``whitespace``.
        families: of ``RaB``, ``ARaB``, ``parts`` (RaB and ARaB of each group alone, if they are
            measured; both if not), ``FaiRR``, ``NFaiRR``, ``Exposure``, ``AWRF_JS``, ``EE-L``,
            ``EE-D``, ``EE-R``, ``NDKL``, ``ExposureRatio``, ``ExposurePerRelevance``.
        cutoffs: t of the formulas.
        kinds: magnitudes of RaB and ARaB, of ``tf``, ``tf-paper``, ``bool``, ``tc``.
        sign: ``x_minus_y`` for two groups of the lexicon; None: ``male_minus_female`` where there
            are these groups, otherwise the second minus the first.
        fairr_cutoffs: t of FaiRR and NFaiRR; None: ``cutoffs``.
        threshold: a document with at most this many words of all groups together is neutral.
        background_depth: number of documents at the head of a background list that NFaiRR's ideal
            is made of.
        ties: order of equal scores of the runs that they are taken of, one of
            :data:`~backpack_rank.data.run_order.TIES`.
        groups: where the groups of documents come from, for AWRF_JS, EE, NDKL and ratios of
            exposure: ``words``, a file, ``field:NAME``, or several; see
            :mod:`backpack_rank.evaluation.group_files`.
        target: of AWRF_JS, EE and NDKL: ``uniform``, ``relevant`` (each group's share among the
            relevant documents of the query), or a share for each group; of several attributes
            a target for each: ``{gender: uniform, region: {asia: 0.5, europe: 0.5}}``.
        relevant_from: lowest label of a relevant document, for EE, exposure per relevance and the
            target ``relevant``.
        extra: further measures by name, such as ``RaB(tc,male)@100``.
    """

    preset: Name = "default"
    lexicon: PathText = "gender_words"
    tokenizer: Annotated[str, OneOf(TOKENIZERS)] = "word"
    families: Annotated[Sequence[Annotated[str, OneOf(FAMILIES)]], Length(1)] = (
        "RaB",
        "ARaB",
        "NFaiRR",
    )
    cutoffs: Annotated[Sequence[Cutoff], Length(1, 1000)] = CUTOFFS
    kinds: Annotated[Sequence[Annotated[str, OneOf(MAGNITUDES)]], Length(1)] = KINDS
    sign: Name | None = None
    fairr_cutoffs: (
        Annotated[Sequence[Cutoff], Length(1, 1000)] | Annotated[None, Note("for cutoffs")]
    ) = None
    threshold: CountOrZero = 1
    background_depth: Count = 200
    ties: Annotated[str, OneOf(TIES)] = "trec_eval"
    groups: PathText | Annotated[Sequence[PathText], Length(1)] = WORDS
    target: Target = "uniform"
    relevant_from: Count = 1
    extra: Sequence[Name] = ()

    def __post_init__(self) -> None:
        groups = self._lexicon.group_names
        parse_sign(self._sign(groups), groups)
        for name, measure in self.measures.items():
            _check_measure(name, measure, groups)
            self._check_attribute(name, measure)

    @cached_property
    def measures(self) -> dict[str, FairnessMeasure]:
        """Every measure by its name, those of one cut-off side by side."""
        groups = self._lexicon.group_names
        others = [measure for measure in _OTHERS if measure.family in self.families]
        measures: dict[str, FairnessMeasure] = {}
        # Each cut-off once, in the order that they are given in.
        for cutoff in dict.fromkeys([*self.cutoffs, *self._fairr_cutoffs]):
            if cutoff in self.cutoffs:
                measures |= self._of_kinds(groups, cutoff)
            for measure in others:
                if cutoff not in self._cutoffs_of(measure):
                    continue
                of_groups: list[FairnessMeasure] = [measure]
                if "group" in measure.POSITIONAL:
                    of_groups = [measure(group=group) for group in document_groups(groups)]
                for of_group in of_groups:
                    at_cutoff = of_group(cutoff=cutoff)
                    measures[at_cutoff.name] = at_cutoff
        if self.extra:
            for name, extra in parse_measures(self.extra).items():
                if not isinstance(extra, FairnessMeasure):
                    raise ValueError(
                        f"{name} is no measure of fairness; examples: {FAIRNESS_EXAMPLES}"
                    )
                measures[name] = extra
        return self._of_each_attribute(measures)

    @property
    def needs_background(self) -> bool:
        """Whether :meth:`measure` needs a background run, because NFaiRR is among the measures."""
        return any(measure.needs_background for measure in self.measures.values())

    @property
    def group_measures(self) -> dict[str, FairnessMeasure]:
        """Those of :attr:`measures` that are of the exposure of groups."""
        return {
            name: measure
            for name, measure in self.measures.items()
            if isinstance(measure, GroupMeasure)
        }

    @property
    def needs_judgements(self) -> bool:
        """Whether a measure is of relevant documents."""
        of_groups = self.group_measures.values()
        return any(measure.needs_judgements for measure in of_groups) or self._relevant_target

    def documents(
        self, runs: Iterable[Run], background: Run | None = None, qrels: Qrels | None = None
    ) -> list[str]:
        """Distinct ids of the documents that magnitudes are needed of, to measure these runs.

        Args:
            runs: what is measured.
            background: of NFaiRR.
            qrels: judgements of the same queries; their relevant documents are part of a target.
        """
        deepest = max(measure["cutoff"] for measure in self.measures.values())
        if any(measure.looks_at_whole_lists for measure in self.measures.values()):
            deepest = sys.maxsize
        doc_ids = top_documents(runs, deepest)
        if background is not None and self.needs_background:
            doc_ids += top_documents([background], self.background_depth)
        if self._relevant_target:
            for labels in (qrels or {}).values():
                for doc_id, label in labels.items():
                    if label >= self.relevant_from:
                        doc_ids.append(doc_id)
        return list(dict.fromkeys(doc_ids))

    def magnitudes(self, doc_ids: Iterable[str], documents: DocumentStore) -> GroupMagnitudes:
        """Magnitudes of these documents, see :meth:`GroupMagnitudes.of`."""
        return GroupMagnitudes.of(doc_ids, documents, self._lexicon, TOKENIZERS[self.tokenizer])

    def document_groups(
        self, doc_ids: Iterable[str], collection: Collection, magnitudes: GroupMagnitudes
    ) -> dict[str, DocumentGroups]:
        """Groups of these documents by attribute, of all sources.

        Args:
            doc_ids: documents to look at.
            collection: has the fields.
            magnitudes: of the source ``words``.

        Raises:
            ValueError: a file that is malformed, or a field that there is not.
        """
        wanted = list(doc_ids)
        groups: dict[str, DocumentGroups] = {}
        with located("bias.groups"):
            for source in self._sources:
                if source.source == WORDS:
                    groups[WORDS] = DocumentGroups.of_words(magnitudes)
                else:
                    # A target is over all groups of the collection, but where relevant documents
                    # say what it is: groups without one of them have no share.
                    targets = [self._target_of(name) for name in source.attributes]
                    over_all = any(target != RELEVANT for target in targets)
                    groups |= source.groups(collection, wanted, all_groups=over_all)
        for attribute, of_attribute in groups.items():
            target = self._target_of(attribute)
            # A group that no document here is of may be given a share of the attention. Where the
            # only attribute is named, as in {gender: uniform}, no shares are given.
            if isinstance(target, Mapping) and attribute not in target:
                groups[attribute] = of_attribute.including(target)
        return groups

    def check_target(self, collection: Collection) -> None:
        """Before anything is ranked, for groups that a target is over.

        Raises:
            ValueError: there is one group alone; or as of :meth:`document_groups`.
        """
        if not self.group_measures:
            return
        magnitudes = self.magnitudes([], collection.documents)
        groups = self.document_groups([], collection, magnitudes)
        context = self.context(magnitudes, groups=groups)
        assert context.exposure is not None  # since the constructor
        with located("bias.groups"):
            context.exposure.check_target(self.group_measures)

    def _target_of(self, attribute: str) -> Any:
        """Of an attribute: a mapping is that of the only one, or has one for each of several."""
        target = self.target
        if isinstance(target, Mapping) and (len(self.attributes) > 1 or attribute in target):
            return target.get(attribute, UNIFORM)
        return target

    def context(
        self,
        magnitudes: GroupMagnitudes,
        background: Run | None = None,
        query_ids: Iterable[str] | None = None,
        qrels: Qrels | None = None,
        groups: Mapping[str, DocumentGroups] | None = None,
    ) -> FairnessContext:
        """These choices with magnitudes: what measures of fairness are computed from.

        Args:
            magnitudes: of all documents that are looked at.
            background: of NFaiRR.
            query_ids: the bias set; None: the queries of a run.
            qrels: judgements, where :attr:`needs_judgements` says so.
            groups: as of :meth:`document_groups`; None: those of the words.
        """
        if groups is None:
            groups = {WORDS: DocumentGroups.of_words(magnitudes)}
        # A target may be of groups that nobody asks for, and that are not read then.
        target = self.target if self.group_measures else UNIFORM
        with located("bias.target"):
            exposure = GroupExposure(groups, qrels, target, self.relevant_from)
        return FairnessContext(
            magnitudes=magnitudes,
            sign=self._sign(magnitudes.groups),
            background=background,
            background_depth=self.background_depth,
            threshold=self.threshold,
            query_ids=query_ids,
            exposure=exposure,
        )

    def measure(
        self,
        run: Run,
        magnitudes: GroupMagnitudes,
        background: Run | None = None,
        query_ids: Iterable[str] | None = None,
        qrels: Qrels | None = None,
    ) -> PerQuery:
        """Values of a run, see :meth:`FairnessContext.measure`."""
        context = self.context(magnitudes, background, query_ids, qrels)
        return context.measure(run, self.measures)

    def describe(self, about: RunInfo, background: str = "") -> RunInfo:
        """The same with these choices, and a note on NFaiRR if it is measured.

        Args:
            about: what is known about the report already.
            background: name of the background run, such as ``BM25``.
        """
        lexicon = self._lexicon
        counts = []
        for group, words in lexicon.groups.items():
            counts.append(f"{len(words)} {group}")
        sign = self._sign(lexicon.group_names)
        notes = about.notes
        if self.needs_background:
            note = (
                "NFaiRR: best is 1; its ideal is made of the documents of "
                f"{background or 'the background run'}, {self.background_depth} at most; a "
                f"document with at most {self.threshold} words of all groups is neutral"
            )
            notes = (*notes, note)
        return replace(
            about,
            preset=self.preset,
            lexicon=f"{lexicon.name} ({' + '.join(counts)} words)",
            tokenizer=self.tokenizer,
            sign=sign,
            sign_in_words=sign_in_words(sign, lexicon.group_names),
            notes=notes,
        )

    def _of_kinds(self, groups: Sequence[str], cutoff: int) -> dict[str, FairnessMeasure]:
        """Measures of magnitudes at a cut-off, and those of each group alone behind them."""
        asked = [measure for measure in _OF_KINDS if measure.family in self.families]
        measures = [measure(magnitude=kind) for kind in self.kinds for measure in asked]
        if "parts" in self.families:
            # With none of them among the families, the parts of all are measured.
            for kind, group in itertools.product(self.kinds, groups):
                for measure in asked or _OF_KINDS:
                    measures.append(measure(magnitude=kind, of=group))
        return {(measure @ cutoff).name: measure @ cutoff for measure in measures}

    def _cutoffs_of(self, measure: FairnessMeasure) -> Sequence[int]:
        if isinstance(measure, WordMeasure) and measure.of_neutrality:
            return self._fairr_cutoffs
        return self.cutoffs

    @cached_property
    def _sources(self) -> list[GroupSource]:
        given = [self.groups] if isinstance(self.groups, str) else list(self.groups)
        with located("bias.groups"):
            sources = [GroupSource(source) for source in given]
            attributes: dict[str, str] = {}
            for source in sources:
                for attribute in source.attributes:
                    if attribute in attributes:
                        raise ValueError(
                            f"{attributes[attribute]} and {source.source} both have groups of "
                            f"{attribute!r}: give one of them"
                        )
                    attributes[attribute] = source.source
        return sources

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes whose groups there are, such as ``gender`` and ``region``."""
        return tuple(name for source in self._sources for name in source.attributes)

    def _of_each_attribute(
        self, measures: Mapping[str, FairnessMeasure]
    ) -> dict[str, FairnessMeasure]:
        """``AWRF_JS@20`` as that of each attribute, where there are several."""
        if len(self.attributes) == 1:
            return dict(measures)
        of_attributes: dict[str, FairnessMeasure] = {}
        for name, measure in measures.items():
            if not isinstance(measure, GroupMeasure) or "attribute" in measure.params:
                of_attributes[name] = measure
                continue
            for attribute in self.attributes:
                of_attribute = measure(attribute=attribute)
                of_attributes[of_attribute.name] = of_attribute
        return of_attributes

    def _check_attribute(self, name: str, measure: FairnessMeasure) -> None:
        for attribute in str(measure.params.get("attribute") or "").split(CROSS):
            if attribute and attribute not in self.attributes:
                raise ValueError(
                    f"{name}: bias.groups has no attribute {attribute!r}; choose from "
                    f"{', '.join(self.attributes)}, or several such as gender{CROSS}region"
                )

    @property
    def _relevant_target(self) -> bool:
        """Whether a measure is held against each group's share among the relevant documents."""
        target = self.target
        if isinstance(target, Mapping):
            asked = RELEVANT in target.values()
        else:
            asked = target == RELEVANT
        return asked and bool(self.group_measures)

    @cached_property
    def _lexicon(self) -> Lexicon:
        with located("bias.lexicon"):
            return load_lexicon(self.lexicon)

    def _sign(self, groups: Sequence[str]) -> str:
        return default_sign(groups) if self.sign is None else self.sign

    @property
    def _fairr_cutoffs(self) -> Sequence[int]:
        return self.cutoffs if self.fairr_cutoffs is None else self.fairr_cutoffs


def _check_measure(name: str, measure: FairnessMeasure, groups: Sequence[str]) -> None:
    """What the parser cannot know: whether the lexicon has the groups of a measure."""
    of = measure.params.get("of")
    if of is not None and of not in groups:
        # A sign such as male_minus_female is as good as a group; anything else raises.
        parse_sign(of, groups)
    group = measure.params.get("group")
    if group is not None and group not in document_groups(groups):
        raise ValueError(
            f"{name}: unknown group {group!r}; choose from {', '.join(document_groups(groups))}"
        )
