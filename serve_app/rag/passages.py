"""Documents cut into passages: what is embedded, found and handed to the LLM as one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".md", ".txt")
HANDBOOK = Path(__file__).with_name("handbook")


class BadDocuments(ValueError):
    """A folder without one document that can be read; the message names it."""


@dataclass(frozen=True, slots=True)
class Passage:
    """`id` is the document and the passage's number in it: `limits.md#2`."""

    id: str
    text: str


def read_passages(folder: Path, max_words: int = 120) -> tuple[Passage, ...]:
    """The passages of all .md and .txt files below `folder`, each at most `max_words` long.

    A passage is whole paragraphs under their nearest heading; only a paragraph that is longer
    is cut. BadDocuments if there is none.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    passages = [
        Passage(f"{path.relative_to(folder)}#{number}", text)
        for path in paths
        for number, text in enumerate(_cut(_content(path), max_words), start=1)
    ]
    if not passages:
        raise BadDocuments(f"{folder}: no text in any {' or '.join(SUFFIXES)} file")
    return tuple(passages)


def _content(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDocuments(f"{path}: {error}") from error


def _cut(content: str, max_words: int) -> Iterator[str]:
    heading, held = "", list[str]()
    for paragraph in content.split("\n\n"):
        words = paragraph.split()
        if not words:
            continue
        if words[0].strip("#") == "":
            if held:
                yield _joined(heading, held)
            first, *rest = paragraph.strip().splitlines()
            heading, held, words = first.lstrip("#").strip(), [], " ".join(rest).split()
        if held and len(held) + len(words) > max_words:
            yield _joined(heading, held)
            held = []
        held += words
        while len(held) > max_words:
            yield _joined(heading, held[:max_words])
            held = held[max_words:]
    if held:
        yield _joined(heading, held)


def _joined(heading: str, words: list[str]) -> str:
    text = " ".join(words)
    return f"{heading}: {text}" if heading else text
