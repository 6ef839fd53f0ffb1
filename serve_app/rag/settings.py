"""What the RAG application's `args` may say: the LLM application's keys, and these."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from serve_app.rag.passages import HANDBOOK
from serve_app.settings import AppSettings, Strict


class EncoderSettings(Strict):
    """The sentence encoder of each Embedder replica."""

    model: Annotated[str, Field(min_length=1, max_length=200)] = "all-minilm-l6-v2"
    """The name clients ask for at /v1/embeddings."""
    model_dir: Path | None = None
    """A folder in sentence-transformers' layout; None is all-MiniLM-L6-v2 from its package."""
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    """Cores of one call: at most the replica's num_cpus. More replicas scale better."""


class IndexSettings(Strict):
    """What is searched."""

    documents: Path = HANDBOOK
    """Folder of .md and .txt files, embedded when the application is built."""
    dir: Path | None = None
    """An index that `python -m serve_app.rag.index` wrote, readable by every Search replica."""
    kind: Literal["flat", "hnsw"] = "flat"
    """How `documents` are indexed: flat is exact; hnsw for more than some 50 000 passages."""
    passages: Annotated[int, Field(ge=1, le=50)] = 3
    """Handed to the LLM at most."""
    min_score: Annotated[float, Field(ge=-1, le=1)] = 0.25
    """Cosine similarity below which a passage is not handed on."""


class BatchSettings(Strict):
    """`user_config` of the Embedder: changes in place, without a restart."""

    max_batch_size: Annotated[int, Field(ge=1, le=256)] = 16
    """Texts embedded in one call; more per call cost less each up to some 16 (README)."""
    batch_wait_s: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How long a batch waits to fill. 0: it takes what came while the last one ran."""


class RagSettings(AppSettings):
    """One LLM that answers from passages."""

    encoder: EncoderSettings = EncoderSettings()
    index: IndexSettings = IndexSettings()

    @model_validator(mode="after")
    def _names_differ(self) -> "RagSettings":
        if self.model == self.encoder.model:
            raise ValueError("model and encoder.model must differ")
        return self

    def llm(self) -> AppSettings:
        """The LLM's own part."""
        return AppSettings.model_validate(
            {name: getattr(self, name) for name in AppSettings.model_fields}
        )
