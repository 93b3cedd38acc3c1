"""Policies: what a ranker does differently at an alpha other than 1 (Afzali et al., eq. 5).

A policy is asked for views of a (query, document) pair. The score of the pair is a sum over them:

    score = sum over views of coefficient * score of the pair under the view

Weights per sense and shifted tokens are one view with coefficient 1. An average over rewritten
texts is several views. At alpha = 1 no policy is asked: the ranker is unchanged.

Policies are options of the command line. ``@checked("policy")`` checks the arguments of a
constructor by their annotations, and calls them ``policy.NAME`` in errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.first_names import clear_names
from backpack_rank.attributes.group_queries import QUERIES, GroupQueries
from backpack_rank.attributes.word_classes import WordClasses, class_of_names, load_all_classes
from backpack_rank.checks import located
from backpack_rank.constructors import Count, FilePath, Length, OneOf, Positive, Range, checked
from backpack_rank.models.backpack_encoder import SenseRanker
from backpack_rank.models.rankers import Ranker
from backpack_rank.models.token_shift import SCOPES, TokenClasses, TokenShift, token_shift
from backpack_rank.senses.sensitivity import Sensitivity, sensitivity
from backpack_rank.senses.views import View

LARGEST_ALPHA = 1000
"""Far above every use; what is larger is a slip of the keyboard, and overflows in half
precision.
"""
Weight = Annotated[float, Range(least=0, most=1000)]
"""Of a sense; 1 leaves its part of the score unchanged."""


@dataclass(frozen=True, eq=False)
class PolicyContext:
    """What policies know of: a ranker and the words of an attribute.

    Policies ask it for sensitivities and token shifts. It computes each of them once.

    >>> context = PolicyContext(ranker, tokenizer, [("she", "he")])  # doctest: +SKIP
    >>> context.sensitivity.values  # doctest: +SKIP
    tensor([0.91, 0.13, 0.87, ...])

    Attributes:
        ranker: any ranker; one without senses takes only policies that move tokens where it reads
            them, or that rewrite texts.
        tokenizer: the ranker's; None for one behind a server.
        pairs: words that differ in the attribute alone, such as (she, he).
        attribute: its name, such as ``gender``; "" where only pairs are given.
        group_queries: which queries ask for a group of it; None: it is not known.
    """

    ranker: Ranker
    tokenizer: PreTrainedTokenizerBase | None
    pairs: Sequence[tuple[str, str]] = ()
    attribute: str = ""
    group_queries: GroupQueries | None = None
    _sensitivities: dict[tuple[tuple[str, str], ...], Sensitivity] = field(
        default_factory=dict, init=False, repr=False
    )
    _token_classes: dict[WordClasses, TokenClasses] = field(
        default_factory=dict, init=False, repr=False
    )
    _token_shifts: dict[tuple[WordClasses, str], TokenShift] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of(
        cls, ranker: Ranker, tokenizer: PreTrainedTokenizerBase | None, attribute: Attribute
    ) -> PolicyContext:
        """An attribute: the word pairs are those of its two sides."""
        groups = ranker.config.groups if isinstance(ranker, SenseRanker) else ()
        has_further_group = any(
            name == attribute.name and group not in attribute.sides for name, group in groups
        )
        # The two sides may leave out a group, such as a third religion. Its attribute sense is 0
        # for all words of the two sides, so their pairs alone would give it s_l = 1, as if it told
        # no words apart. Pairs of all groups include words that it does tell apart.
        pairs = attribute.all_pairs() if has_further_group else attribute.pairs().pairs
        return cls(ranker, tokenizer, pairs, attribute.name, attribute.group_queries)

    @cached_property
    def sensitivity(self) -> Sensitivity | None:
        """s_l of the senses (eq. 4); None for a ranker without senses."""
        if not isinstance(self.ranker, SenseRanker) or self.tokenizer is None:
            return None
        return self.sensitivity_of(self.pairs)

    def sensitivity_of(self, pairs: Sequence[tuple[str, str]]) -> Sensitivity:
        """s_l of the senses of a ranker that has some, from other pairs of words."""
        key = tuple(pairs)
        if key not in self._sensitivities:
            self._sensitivities[key] = sensitivity(self.ranker.backpack, self.tokenizer, key)  # type: ignore[arg-type]
        return self._sensitivities[key]

    def needed_sensitivity(self, policy: str) -> Tensor:
        """s_l of the senses [k], for the policy of that name.

        Raises:
            TypeError: the ranker has no senses.
        """
        if self.sensitivity is None:
            raise TypeError(
                f"{self.ranker.label} has no sense vectors, and this policy, {policy}, needs them"
            )
        return self.sensitivity.values

    def token_classes(self, words: WordClasses) -> TokenClasses:
        """The classes in the ranker's tokens.

        Raises:
            TypeError: the ranker's tokens cannot be reached.
            ValueError: see :meth:`TokenClasses.of`.
        """
        if self.tokenizer is None:
            raise TypeError(
                f"{self.ranker.label}: its word vectors are out of reach, so no token can be moved"
            )
        # Looking through a vocabulary takes a second.
        if words not in self._token_classes:
            self._token_classes[words] = TokenClasses.of(self.tokenizer, words)
        return self._token_classes[words]

    def token_shift(self, words: WordClasses, scope: str, alpha: float) -> TokenShift:
        """The shift of the classes' tokens at an alpha.

        Raises:
            TypeError, ValueError: see :meth:`token_classes` and
                :func:`backpack_rank.models.token_shift.token_shift`.
        """
        key = words, scope
        if key not in self._token_shifts:
            classes = self.token_classes(words)
            self._token_shifts[key] = token_shift(self.ranker, classes, scope, alpha)
        # The means of the classes are the same for every alpha, so they are computed for the first.
        return replace(self._token_shifts[key], alpha=alpha)


@dataclass(frozen=True)
class Policy(ABC):
    """A way to control a ranker: alpha in, views out. Subclass it for one of your own.

    Attributes:
        queries: which queries the dial acts on. ``neutral_only``: a query that asks for a group
            (:mod:`backpack_rank.attributes.group_queries`) is scored as if there were no dial;
            ``all``: it loses what it asks for.
    """

    queries: Annotated[str, OneOf(QUERIES)] = field(default=QUERIES[0], kw_only=True, repr=False)

    is_control = False
    """True for a policy to compare others with: it scales senses without looking at sensitivity. A
    claim that another policy works needs such a control beside it. Dataclasses set it without an
    annotation: with one, it would be an argument of their constructor."""

    in_words = ""
    """What it does, for somebody who knows nothing of rankers; the demo page shows it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name for tables and files."""

    @abstractmethod
    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        """The views whose weighted scores add up to a pair's score, at an alpha other than 1.

        Raises:
            TypeError: the policy needs senses, and the ranker has none.
            ValueError: the policy does not fit the ranker.
        """

    @classmethod
    def is_control_under(cls, options: Sequence[str]) -> bool:
        """Whether it is a control with these options, as they are typed: ``seed=3``."""
        return cls.is_control

    def needs_senses(self) -> bool:
        """True where only a ranker with senses can be scored under this policy."""
        return True

    def named(self, *parts: str) -> str:
        """The name that these parts make, which says so where the dial acts on all queries."""
        return "_".join((*parts, "all_queries") if self.queries == "all" else parts)


class SensePolicy(Policy):
    """Subclass this for a policy that weighs senses (M_s of eq. 5), by 1 where alpha = 1."""

    @abstractmethod
    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k], >= 0, from sensitivities s_l [k] and alpha.

        Raises:
            ValueError: the policy does not fit the senses.
        """

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        sensitivity = context.needed_sensitivity(self.name)
        return (View(sense_weights=self.weights(sensitivity, alpha)),)


class ScaledSenses(SensePolicy):
    """Subclass this for a policy that multiplies some senses by alpha, and the others by 1."""

    @abstractmethod
    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses."""

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        weights = torch.ones_like(sensitivity)
        weights[self.chosen(sensitivity)] = alpha
        return weights


@checked("policy")
@dataclass(frozen=True)
class LowestSenses(ScaledSenses):
    """The paper's rule: the ``count`` most sensitive senses, those of lowest s_l.

    >>> LowestSenses(2).weights(torch.tensor([0.9, 0.1, 0.8, 0.2]), alpha=0.5)
    tensor([1.0000, 0.5000, 1.0000, 0.5000])

    Of a ranker with attribute senses (:mod:`backpack_rank.models.attribute_senses`) these are the
    senses of the attribute's groups, whose s_l is 0.

    Attributes:
        count: how many senses; None: two as in the paper, or as many as the ranker has senses of
            the attribute.
    """

    in_words = "Turns down the parts of the ranker that tell one group's words from the other's."

    count: Count | None = None

    @property
    def name(self) -> str:
        return self.named("lowest_senses" if self.count is None else f"lowest_{self.count}_senses")

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        sensitivity = context.needed_sensitivity(self.name)
        rule = self
        if self.count is None:
            # A ranker has one attribute sense for each (attribute, group); 2 is the paper's number.
            attributes = [attribute for attribute, _ in context.ranker.config.groups]
            rule = replace(self, count=attributes.count(context.attribute) or 2)
        return (View(sense_weights=rule.weights(sensitivity, alpha)),)

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, the most sensitive first; equal values by index. [count]

        Raises:
            ValueError: there are fewer senses than ``count``.
        """
        # None: without a ranker at hand, the paper's number. views() asks the ranker first.
        count = 2 if self.count is None else self.count
        check_enough(count, sensitivity)
        return sensitivity.argsort(stable=True)[:count]


@checked("policy")
@dataclass(frozen=True)
class ThresholdSenses(ScaledSenses):
    """Scales every sense whose s_l lies below a value, however many they are.

    >>> ThresholdSenses(threshold=0.5).weights(torch.tensor([0.9, 0.1, 0.8, 0.2]), alpha=0.0)
    tensor([1., 0., 1., 0.])

    Attributes:
        threshold: the value itself, or None.
        quantile: the value as a quantile of the senses' s_l, above 0 and up to 1 (linear
            interpolation), or None. One of the two is given.
    """

    in_words = "Turns down the parts that tell the groups' words apart by more than a bound."

    threshold: float | None = None
    quantile: Annotated[float, Range(above=0, most=1)] | None = None

    def __post_init__(self) -> None:
        if (self.threshold is None) == (self.quantile is None):
            raise ValueError(
                "give either policy.threshold (a value of s_l) or policy.quantile (0 to 1), and "
                "not both"
            )

    @property
    def name(self) -> str:
        if self.quantile is not None:
            return self.named(f"below_quantile_{self.quantile:g}")
        return self.named(f"below_{self.threshold:g}")

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, ascending.

        Raises:
            ValueError: no sense lies below the threshold; says between which values s_l lies.
        """
        threshold = self.threshold
        if threshold is None:
            assert self.quantile is not None
            threshold = float(sensitivity.double().quantile(self.quantile))
        chosen = (sensitivity < threshold).nonzero().flatten()
        if len(chosen) == 0:
            low, high = float(sensitivity.min()), float(sensitivity.max())
            raise ValueError(
                f"policy {self.name} selects no sense: s_l of the {len(sensitivity)} senses lies "
                f"between {low:.4f} and {high:.4f}, and none is below {threshold:.4f}"
            )
        return chosen


@checked("policy")
@dataclass(frozen=True)
class RandomSenses(ScaledSenses):
    """A control: ``count`` senses drawn with ``seed``, whatever their s_l."""

    in_words = "For comparison: turns down parts of the ranker that were drawn by lot."

    count: Count = 2
    seed: Annotated[int, Range(least=0, most=2**63 - 1)] = 0
    is_control = True

    @property
    def name(self) -> str:
        return self.named(f"random_{self.count}_senses_seed_{self.seed}")

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, the same for every alpha. [count]

        Raises:
            ValueError: there are fewer senses than ``count``.
        """
        check_enough(self.count, sensitivity)
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(len(sensitivity), generator=generator)[: self.count]


@checked("policy")
@dataclass(frozen=True)
class UniformSenses(SensePolicy):
    """A control: every sense times alpha.

    It moves no sense against another, so it does to a measure what a mere change of the scores'
    scale does.
    """

    in_words = "For comparison: turns down all parts of the ranker alike."

    is_control = True

    @property
    def name(self) -> str:
        return self.named("uniform")

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        return torch.full_like(sensitivity, alpha)


@checked("policy")
@dataclass(frozen=True)
class SoftSenses(SensePolicy):
    """Where no number of senses is right: the weight of a sense rises with its s_l.

    The weight is alpha + (1 - alpha) g(s_l), so it lies between alpha (sensitive) and 1 (not
    sensitive), with

        g(s_l) = 1 / (1 + exp(-z_l / temperature)),
        z_l = (s_l - mean) / standard deviation over the senses.

    A sense of mean sensitivity gets g = 1/2. A temperature near 0 is a step at the mean, a high
    one is :class:`UniformSenses` at (1 + alpha) / 2.

    >>> SoftSenses().weights(torch.tensor([0.1, 0.5, 0.9]), alpha=0.0)
    tensor([0.0074, 0.5000, 0.9926])

    Attributes:
        temperature: above 0.
    """

    in_words = "Turns each part of the ranker down by how clearly it tells the groups' words apart."

    temperature: Positive = 0.25

    @property
    def name(self) -> str:
        return self.named(f"soft_{self.temperature:g}")

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k]. Raises ``ValueError`` where all senses have the same s_l."""
        values = sensitivity.double()
        # Compared before the standard deviation is computed: that of equal numbers need not be 0.
        if values.min() == values.max():
            raise ValueError(
                f"s_l is {float(values[0]):.4f} for each of the {len(values)} senses: policy "
                f"{self.name} cannot tell them apart; policy=uniform scales all of them"
            )
        standardised = (values - values.mean()) / values.std(correction=0)
        kept_share = torch.sigmoid(standardised / self.temperature)
        return (alpha + (1 - alpha) * kept_share).to(sensitivity)


@checked("policy")
@dataclass(frozen=True)
class ExplicitWeights(SensePolicy):
    """Weights w_l of your own: 1 + (1 - alpha) (w_l - 1).

    >>> ExplicitWeights([1, 0, 3]).weights(torch.zeros(3), alpha=0.5)
    tensor([1.0000, 0.5000, 2.0000])

    Attributes:
        values: w_l, the weights at alpha = 0, one number >= 0 per sense.
    """

    values: Annotated[Sequence[Weight], Length(1)]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(float, self.values)))

    @property
    def name(self) -> str:
        return self.named("explicit")

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k]. Raises ``ValueError`` where there is not one value per sense."""
        if len(self.values) != len(sensitivity):
            raise ValueError(
                f"policy.values has {len(self.values)} weights, but the model has "
                f"{len(sensitivity)} senses"
            )
        at_zero = torch.tensor(self.values, dtype=torch.float64)
        weights = 1 + (1 - alpha) * (at_zero - 1)
        # Above alpha = 1 the line falls below 0 where w_l < 1, and a sense would change its sign.
        return weights.clamp(min=0).to(sensitivity)


@checked("policy")
@dataclass(frozen=True)
class PairedTokens(Policy):
    """Moves words of a class, such as he and she, towards each other or apart.

    Every token of a class v(x) becomes v_bar + alpha (v(x) - v_bar), with v_bar the mean of the
    class; see :mod:`backpack_rank.models.token_shift`.

    >>> PairedTokens.of(Attribute.named("gender"), scope="senses", wide=True).name
    'paired_tokens_senses_wide'

    Attributes:
        classes: files of word classes, names in ``lexicons/`` or paths.
        wide_classes: further files (titles, occupations, kinship), used when ``wide`` is set.
        names: a lexicon of first names, which become one class when ``with_names`` is set: names
            are identity.
        scope: where tokens are moved: ``senses``, ``weights`` or ``both``; None: both, or
            ``weights`` for a ranker without senses.
    """

    in_words = "Moves the words of a pair, such as she and he, towards what they have in common."

    classes: Sequence[FilePath]
    wide_classes: Sequence[FilePath] = ()
    names: FilePath | None = None
    scope: Annotated[str, OneOf(SCOPES)] | None = None
    wide: bool = False
    with_names: bool = False

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError(
                "policy.classes is empty: name at least one file of word classes, such as "
                "gender_classes"
            )
        if self.with_names and self.names is None:
            raise ValueError(
                "policy.with_names=true needs policy.names, a lexicon of first names such as "
                "gender_names"
            )

    @classmethod
    def of(
        cls,
        attribute: Attribute,
        scope: str | None = None,
        wide: bool = False,
        names: bool = False,
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
    ) -> PairedTokens:
        """Move the words of an attribute; with ``names``, its first names too."""
        return cls(
            classes=tuple(map(str, attribute.class_files)),
            wide_classes=tuple(map(str, attribute.wide_class_files)),
            names=None if attribute.names_file is None else str(attribute.names_file),
            scope=scope,
            wide=wide,
            with_names=names,
            queries=queries,
        )

    @property
    def name(self) -> str:
        parts = ["paired_tokens"]
        if self.scope is not None:
            parts.append(self.scope)
        if self.wide:
            parts.append("wide")
        if self.with_names:
            parts.append("names")
        return self.named(*parts)

    def needs_senses(self) -> bool:
        return self.scope in ("senses", "both")

    def scope_for(self, ranker: Ranker) -> str:
        """Where the tokens of a ranker are moved."""
        if self.scope is not None:
            return self.scope
        return "both" if ranker.has_senses else "weights"

    def words(self) -> WordClasses:
        """The word classes of all files in use."""
        files = list(self.classes)
        if self.wide:
            files += self.wide_classes
        with located("policy.classes"):
            words = load_all_classes(files)
        if not self.with_names or self.names is None:
            return words
        with located("policy.names"):
            return words.merged(class_of_names(clear_names(self.names)))

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        scope = self.scope_for(context.ranker)
        return (View(token_shift=context.token_shift(self.words(), scope, alpha)),)


def check_alpha(alpha: float | str) -> float:
    """Call this where a value for alpha comes in: it gives the value as a float.

    >>> check_alpha(1)
    1.0

    Raises:
        ValueError: alpha is not a number from 0 to :data:`LARGEST_ALPHA`.
    """
    # True is an int in Python, and alpha=true a slip.
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise ValueError(f"alpha={alpha!r} is not a number; give one >= 0, such as alpha=0.5")
    if not 0 <= alpha <= LARGEST_ALPHA:
        raise ValueError(
            f"alpha={alpha} must be a finite number >= 0 and at most {LARGEST_ALPHA}: 0 removes, "
            "1 leaves as it is, more amplifies"
        )
    return float(alpha)


def check_enough(count: int, sensitivity: Tensor) -> None:
    """Raise ``ValueError`` where there are fewer than ``count`` senses, of one value each [k]."""
    if count > len(sensitivity):
        raise ValueError(f"policy.count={count}, but the model has {len(sensitivity)} senses")
