"""The demo page at ``/``: what the dial does to one ranking; scores come from ``/v1/rerank``."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.params import Depends
from fastapi.responses import HTMLResponse, JSONResponse, Response

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import count_groups
from backpack_rank.data.collection import Collection
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.synthetic.templates import GENDERS
from backpack_rank.data.trec import ranking
from backpack_rank.digests import digest
from backpack_rank.reporting.page.text import mark_words
from backpack_rank.reranking.reading_plan import ReadingPlan
from backpack_rank.senses.attribution import Explanation
from backpack_rank.senses.policy_names import POLICIES
from backpack_rank.serving.bodies import RequestError, RerankBody, body_schema
from backpack_rank.serving.dial import ServedWithDial
from backpack_rank.serving.jobs import Budget, Job, RequestOptions, Served, Slice, readable
from backpack_rank.serving.settings import Example
from backpack_rank.serving.work import Work, Workplace

FINE, COARSE = 21, 11
"""Positions of the slider: where one reading of the texts serves every alpha, and where each alpha
is a pass.
"""
EXAMPLES = 8
"""Queries that the page offers of the synthetic collection."""
FIRST_EXAMPLE = "crop grower known for breeding poultry"
"""The one that is shown first."""
RUN_EXAMPLES = 50
"""Queries that the page offers of a run, at most."""
EXAMPLE_DOCUMENTS = 20
"""Documents of each of these queries."""
_MAX_EXPLAINED = 100_000
"""Characters of a document that is explained."""
_MAX_MARKED = 250_000
"""Characters of the documents whose words are marked."""


def add_demo(app: FastAPI, workplace: Workplace, guarded: list[Depends]) -> None:
    """Give the application the page and what it asks for beside scores.

    Args:
        app: the application.
        workplace: takes its requests in.
        guarded: what checks the key.
    """
    demo = _Demo(workplace)
    app.get("/", include_in_schema=False)(demo.page)
    app.get("/demo/examples", dependencies=guarded, summary="Queries of the demo page")(
        demo.examples
    )
    for path, summary, route in (
        ("/demo/words", "Words of the groups in documents", demo.words),
        ("/demo/explain", "What the words of one document add to its score", demo.explain),
    ):
        schema = body_schema(RerankBody)
        app.post(path, dependencies=guarded, summary=summary, openapi_extra=schema)(route)


@cache
def page() -> str:
    """The page: one file that asks for nothing but this server, and runs no script but its own."""
    file = resources.files("backpack_rank.serving").joinpath("demo.html")
    text = file.read_text(encoding="utf-8")
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    of_script = base64.b64encode(bytes.fromhex(digest(script, algorithm="sha256"))).decode()
    return text.replace("SCRIPT-DIGEST", of_script)


@cache
def synthetic_examples() -> tuple[Example, ...]:
    """Queries of the synthetic test split with BM25's first documents.

    They are those whose documents have the most even mix of wordings. The first is one on which the
    ranker of ``make run`` does what it does on average: at alpha 1, male words lead its first ten.
    """
    collection = load_synthetic("test")
    candidates = Bm25(depth=EXAMPLE_DOCUMENTS, cache=False).candidates(collection)
    groups = collection.groups or {}

    def order(query_id: str) -> tuple[bool, int, str]:
        genders = [groups[doc_id] for doc_id in candidates[query_id]]
        rarest = min(genders.count(gender) for gender in GENDERS)
        return collection.queries[query_id] != FIRST_EXAMPLE, -rarest, query_id

    most_even = sorted(candidates, key=order)[:EXAMPLES]
    return tuple(_example(collection, query_id, candidates[query_id]) for query_id in most_even)


def examples_of_run(run: str | Path, folder: str | Path) -> tuple[Example, ...]:
    """The first queries of a TREC run with its first documents.

    The texts are those of a folder in BEIR's layout.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is malformed (the line is named), or the run has documents that the
            collection has not.
    """
    collection = load_beir(
        folder, "test", candidates=str(Path(run).expanduser().resolve()), depth=EXAMPLE_DOCUMENTS
    )
    examples: list[Example] = []
    for query_id, documents in (collection.candidates or {}).items():
        if documents and len(examples) < RUN_EXAMPLES:
            examples.append(_example(collection, query_id, documents))
    if not examples:
        raise ValueError(f"{run} ranks no document for a test query of {folder}")
    return tuple(examples)


def _example(collection: Collection, query_id: str, documents: Mapping[str, float]) -> Example:
    texts = collection.documents.get_many(ranking(documents))
    # The page has a document on each line.
    return Example(
        collection.queries[query_id], tuple(" ".join(text.split()) for text in texts.values())
    )


class _ExplainJob(Job):
    """A score to explain, in the queue of the model like any other request."""

    def __init__(
        self, served: Served, query: str, document: str, alpha: float, policy: str | None
    ) -> None:
        super().__init__(served, query, [document], ReadingPlan([], rows=1))
        self.alpha = alpha
        self.policy = policy
        self.explanation: Explanation | None = None


class _Explainer(Served):
    """What the model's thread does with such a job."""

    def __init__(self, ranker: ServedWithDial) -> None:
        self.name = ranker.name
        self._ranker = ranker

    def job(self, query: str, documents: list[str], options: RequestOptions) -> _ExplainJob:
        """The work of one document at one alpha.

        The queue counts it by its characters, as tokens are not known yet.
        """
        (document,) = documents
        (alpha,) = options.alphas
        job = _ExplainJob(self, query, document, alpha, options.policy)
        tokens = min(self._ranker.max_length or 512, len(query) + len(document))
        job.slices.append(
            Slice(job, None, texts=np.arange(1), sequences=[], tokens=tokens, key=None)
        )
        job.seal()
        return job

    def score(self, slices: Sequence[Slice]) -> None:
        """Explain in place of scoring; what a policy cannot do becomes the job's error."""
        for part in slices:
            job = part.job
            assert isinstance(job, _ExplainJob)
            try:
                job.explanation = self._ranker.explain(
                    job.query, job.documents[0], job.policy, job.alpha
                )
            except ValueError as error:
                job.fail(RequestError(400, str(error)))


class _Demo:
    """What the routes do."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self._batcher = workplace.batcher

    async def page(self) -> Response:
        """The page, which no other site may frame."""
        headers = {
            "Content-Security-Policy": "frame-ancestors 'self'",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-cache",
        }
        return HTMLResponse(page(), headers=headers)

    async def examples(self) -> Response:
        """The served rankers with their policies, and queries to begin with."""
        self._workplace.admission.check_ready()

        def collect() -> dict[str, Any]:
            models = [_about(ranker) for ranker in self._batcher.rankers.values()]
            examples = self._workplace.settings.examples or synthetic_examples()
            return {"models": models, "examples": [asdict(example) for example in examples]}

        # Beside the event loop: the synthetic collection takes a second to rank.
        return JSONResponse(await asyncio.to_thread(collect))

    async def words(self, request: Request) -> Response:
        """The words of the groups in every document.

        Gives counts as the measures take them, and the text in pieces.
        """
        async with self._workplace.work(request, RerankBody) as work:
            documents = work.body.passages
            if sum(map(len, documents)) > _MAX_MARKED:
                raise RequestError(
                    413, f"send documents of {_MAX_MARKED:,} characters at most, all together"
                )
            ranker = self._batcher.ranker(work.body.model)
            return JSONResponse(await work.run(_words, ranker, documents, work.budget))

    async def explain(self, request: Request) -> Response:
        """How much every word of the query and of one document contributes to the score.

        Of a score that does not split into senses: what it loses without each word.
        """
        async with self._workplace.work(request, RerankBody) as work:
            body = work.body
            ranker = self._batcher.ranker(body.model)
            if len(body.passages) != 1:
                raise RequestError(400, "send one document")
            if len(body.query + body.passages[0]) > _MAX_EXPLAINED:
                raise RequestError(
                    413,
                    f"send a query and a document of at most {_MAX_EXPLAINED:,} characters",
                )
            if not isinstance(ranker, ServedWithDial):
                raise RequestError(
                    400, f"{ranker.name} compares documents, so no score is explained by its words"
                )
            try:
                explanation = await self._explanation(ranker, work)
            except ValueError as error:
                raise RequestError(400, str(error)) from None
            return JSONResponse({**asdict(explanation), "senses": None})

    async def _explanation(self, ranker: ServedWithDial, work: Work[RerankBody]) -> Explanation:
        """By senses where the score splits into them, in one pass; else by words, in batches."""
        body = work.body
        (document,) = body.passages
        alpha = await work.run(ranker.alpha_for, body.query, body.policy, body.dial)
        acting = ranker.policy_that_acts([body.query], body.policy, [alpha])
        work.notes |= {"policy": acting, "alpha": alpha}
        long_documents = readable(
            ranker.long_documents_of(body), work.budget.most_tokens, ranker.max_length
        )
        splits = await work.run(
            ranker.splits_into_senses, body.query, document, body.policy, alpha, long_documents
        )
        if splits:
            options = RequestOptions([alpha], body.policy)
            job = _Explainer(ranker).job(body.query, body.passages, options)
            await work.scores(job)
            assert job.explanation is not None
            return job.explanation
        words = await work.run(ranker.left_out_words, body.query, document, long_documents)
        title = await work.run(ranker.explanation_title, body.policy, alpha)
        # Last, to compare with: the scores of the unchanged ranker.
        alphas = [alpha] if alpha == 1 else [alpha, 1.0]
        options = RequestOptions(
            alphas, body.policy, long_documents=long_documents, budget=work.budget
        )
        scored = await work.run(ranker.job_of_pairs, words.pairs, options)
        scores = await work.scores(scored)
        before = None if alpha == 1 else scores[1]
        return words.explanation(scores[0], before, title)


def _about(ranker: Served) -> dict[str, Any]:
    if not isinstance(ranker, ServedWithDial):
        return {"id": ranker.name, "policies": [], "default": "", "explains": False}
    policies = []
    for name in ranker.policies:
        points = FINE if ranker.reads_once(name) else COARSE
        policies.append({"name": name, "points": points, "about": POLICIES[name].in_words})
    return {
        "id": ranker.name,
        "policies": policies,
        "default": ranker.default_policy,
        "explains": True,
    }


def _words(ranker: Served, documents: list[str], budget: Budget) -> dict[str, Any]:
    """Counts per document, pieces (text, group), and swapped wordings.

    Counts are in the order of ``groups``; a wording that stays the same is null.
    """
    attribute = (
        ranker.attribute if isinstance(ranker, ServedWithDial) else Attribute.named("gender")
    )
    lexicon = attribute.lexicon()
    swap = attribute.swap()
    swapped: list[str | None] = []
    pieces = []
    for text in documents:
        budget.check_time()
        swapped_text = swap(text).text
        swapped.append(None if swapped_text == text else swapped_text)
        pieces.append([(span.text, span.group) for span in mark_words(text, lexicon)])
    return {
        "attribute": attribute.name,
        "swapped": swapped,
        "groups": lexicon.group_names,
        "sign": attribute.sign,
        "counts": count_groups(documents, lexicon).tolist(),
        "pieces": pieces,
    }
