"""The passages by their vectors: a faiss index, made once, then only read.

    python -m serve_app.rag.index --documents FOLDER --out FOLDER

writes one that replicas load from a shared disk (`index.dir`); a small one travels in the config.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from serve_app.rag.encoder import EncoderUnusable, SentenceEncoder, Vectors, shipped_model_dir
from serve_app.rag.passages import BadDocuments, Passage, read_passages

IndexKind = Literal["flat", "hnsw"]
HNSW_LINKS = 32
ENCODE_AT_ONCE = 16


class BadIndex(ValueError):
    """An index that is broken or was made by another encoder; the message says the fix."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage and its cosine similarity to what was asked, -1..1."""

    passage: Passage
    score: float


class PassageIndex:
    """Passages and their vectors, nearest first by cosine similarity."""

    def __init__(
        self, index: faiss.Index, passages: Sequence[Passage], encoder_digest: str
    ) -> None:
        if index.ntotal != len(passages):
            raise BadIndex(f"{index.ntotal} vectors but {len(passages)} passages: make it anew")
        self._index = index
        self._passages = tuple(passages)
        self.encoder_digest = encoder_digest

    @classmethod
    def of(
        cls, passages: Sequence[Passage], vectors: Vectors, encoder_digest: str, kind: IndexKind
    ) -> Self:
        """`flat` compares with every vector, exactly; `hnsw` is for more than some 50 000."""
        dimensions = vectors.shape[1]
        index: faiss.Index = faiss.IndexFlatIP(dimensions)
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(dimensions, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.add(vectors)
        return cls(index, passages, encoder_digest)

    def __len__(self) -> int:
        return len(self._passages)

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Hit]:
        """The `count` nearest passages, best first; fewer if there are fewer."""
        scores, places = self._index.search(vector[np.newaxis], min(count, len(self)))
        return [
            Hit(self._passages[place], float(score))
            for score, place in zip(scores[0], places[0], strict=True)
            if place >= 0
        ]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        faiss.write_index(self._index, str(folder / "vectors.faiss"))
        about = {
            "encoder_digest": self.encoder_digest,
            "passages": [asdict(passage) for passage in self._passages],
        }
        (folder / "passages.json").write_text(json.dumps(about))

    @classmethod
    def load(cls, folder: Path) -> Self:
        try:
            about = json.loads((folder / "passages.json").read_text())
            index = faiss.read_index(str(folder / "vectors.faiss"))
            passages = [Passage(**passage) for passage in about["passages"]]
            return cls(index, passages, about["encoder_digest"])
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise BadIndex(f"index.dir: {folder}: no index to read: {error}") from error

    def __getstate__(self) -> tuple[NDArray[np.uint8], tuple[Passage, ...], str]:
        return faiss.serialize_index(self._index), self._passages, self.encoder_digest

    def __setstate__(self, state: tuple[NDArray[np.uint8], tuple[Passage, ...], str]) -> None:
        content, self._passages, self.encoder_digest = state
        self._index = faiss.deserialize_index(content)


def encoder_digest(model_dir: Path) -> str:
    """Which encoder this is: vectors of two encoders must never be compared."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "tokenizer.json"):
        try:
            digest.update((model_dir / name).read_bytes())
        except OSError as error:
            raise EncoderUnusable(f"no sentence encoder at {model_dir}: {error}") from error
    return digest.hexdigest()[:16]


def index_documents(documents: Path, model_dir: Path, kind: IndexKind = "flat") -> PassageIndex:
    """Read, embed and index a folder: some 100 passages a second a core."""
    passages = read_passages(documents)
    encoder = SentenceEncoder(model_dir)
    texts = [passage.text for passage in passages]
    vectors = np.concatenate(
        [
            encoder.encode(texts[start : start + ENCODE_AT_ONCE])
            for start in range(0, len(texts), ENCODE_AT_ONCE)
        ]
    )
    return PassageIndex.of(passages, vectors, encoder_digest(model_dir), kind)


def main(argv: Sequence[str] | None = None) -> None:
    """Exit code 0 when the index is written, 1 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m serve_app.rag.index", description="Index a folder of .md and .txt files."
    )
    parser.add_argument("--documents", type=Path, required=True, help="folder to read")
    parser.add_argument("--out", type=Path, required=True, help="folder for index.dir")
    parser.add_argument("--kind", choices=("flat", "hnsw"), default="flat")
    parser.add_argument("--model-dir", type=Path, help="sentence encoder (default: MiniLM)")
    options = parser.parse_args(argv)
    try:
        model_dir = options.model_dir or shipped_model_dir()
        index = index_documents(options.documents, model_dir, options.kind)
        index.save(options.out)
    except (BadDocuments, EncoderUnusable, OSError) as error:
        sys.exit(f"index: {error}")
    print(f"{len(index)} passages in {options.out}")


if __name__ == "__main__":
    main()
