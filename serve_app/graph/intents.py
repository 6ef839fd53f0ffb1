"""Which kind of question this is, and which FAQ entry answers it: small scikit-learn models.

Both are trained when the application is built, from a phrases file, in a fraction of a second.
`python -m serve_app.graph.intents [FILE]` cross-validates a file and prints what is confused.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import yaml
from pydantic import Field, ValidationError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline, make_union

from serve_app.settings import Strict

SHIPPED = Path(__file__).with_name("phrases.yaml")
FAQ = "faq"
FOLDS = 4

Phrase = Annotated[str, Field(min_length=1, max_length=500)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=FOLDS)]


class BadPhrases(ValueError):
    """A phrases file that cannot be learned from; the message names the entry."""


class FaqEntry(Strict):
    """One answer and the ways in which it is asked for."""

    answer: Annotated[str, Field(min_length=1)]
    questions: Annotated[tuple[Phrase, ...], Field(min_length=1)]


class PhraseBook(Strict):
    """What the models learn from: FAQ entries, and phrases by intent for all else."""

    faq: Annotated[tuple[FaqEntry, ...], Field(min_length=1)]
    intents: Annotated[dict[str, Phrases], Field(min_length=1)]

    def labelled(self) -> tuple[list[str], list[str]]:
        """Phrases, and the intent of each."""
        pairs = [(question, FAQ) for entry in self.faq for question in entry.questions]
        pairs += [(phrase, name) for name, phrases in self.intents.items() for phrase in phrases]
        return [phrase for phrase, _ in pairs], [name for _, name in pairs]


@dataclass(frozen=True, slots=True)
class Intent:
    """`confidence` is the model's probability, 0..1."""

    name: str
    confidence: float


def read_phrases(path: Path) -> PhraseBook:
    """The phrases of a file, or BadPhrases."""
    try:
        book = PhraseBook.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadPhrases(f"{path}: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise BadPhrases(f"{path}: {where or 'the file'}: {fault['msg']}") from error
    if FAQ in book.intents:
        raise BadPhrases(f"{path}: intents.{FAQ}: its phrases are the questions of faq")
    return book


class IntentModel:
    """Logistic regression on words and pieces of words, so that typing errors cost little."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @classmethod
    def trained(cls, book: PhraseBook) -> Self:
        pipeline = _classifier()
        pipeline.fit(*book.labelled())
        return cls(pipeline)

    @property
    def intents(self) -> tuple[str, ...]:
        return tuple(self._pipeline.classes_)

    def classify(self, text: str) -> Intent:
        """The likeliest intent of one text."""
        [shares] = self._pipeline.predict_proba([text])
        best = int(np.argmax(shares))
        return Intent(self.intents[best], float(shares[best]))


class FaqModel:
    """The answer of the nearest question, if one is near enough."""

    def __init__(self, book: PhraseBook) -> None:
        pairs = [(question, entry.answer) for entry in book.faq for question in entry.questions]
        self._answers = [answer for _, answer in pairs]
        self._features = _features()
        self._questions = self._features.fit_transform([question for question, _ in pairs])

    def answer(self, text: str, min_similarity: float) -> str | None:
        """None if no question's cosine similarity reaches `min_similarity`."""
        # Two halves of length 1 each: half the product is the mean of their cosines.
        similarities = (self._questions @ self._features.transform([text]).T).toarray()[:, 0] / 2
        best = int(np.argmax(similarities))
        return self._answers[best] if similarities[best] >= min_similarity else None


def _features() -> Pipeline:
    return make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, strip_accents="unicode"),
        TfidfVectorizer(
            analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, strip_accents="unicode"
        ),
    )


def _classifier() -> Pipeline:
    return make_pipeline(
        _features(), LogisticRegression(C=30.0, class_weight="balanced", max_iter=1000)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print precision and recall of each intent on phrases that were left out of the training."""
    parser = argparse.ArgumentParser(
        prog="python -m serve_app.graph.intents", description="Cross-validate a phrases file."
    )
    parser.add_argument("phrases", type=Path, nargs="?", default=SHIPPED)
    try:
        phrases, intents = read_phrases(parser.parse_args(argv).phrases).labelled()
    except BadPhrases as error:
        sys.exit(f"intents: {error}")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    guessed = cross_val_predict(_classifier(), phrases, intents, cv=folds)
    print(classification_report(intents, guessed, digits=3))
    for phrase, intent, guess in zip(phrases, intents, guessed, strict=True):
        if guess != intent:
            print(f"{intent} taken for {guess}: {phrase}")


if __name__ == "__main__":
    main()
