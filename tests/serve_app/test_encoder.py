"""The sentence encoder computes what sentence-transformers does, and says what it cannot read."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve_app.rag.encoder import EncoderUnusable, SentenceEncoder, shipped_model_dir

RECORDED = Path(__file__).with_name("recorded") / "minilm.json"


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(shipped_model_dir())


def test_the_vectors_are_sentence_transformers(encoder: SentenceEncoder) -> None:
    """Recorded with torch: plain text, other scripts, and one longer than the encoder reads."""
    recorded = json.loads(RECORDED.read_text())
    vectors = encoder.encode(recorded["texts"])
    assert np.abs(vectors - np.array(recorded["vectors"])).max() < 1e-5


def test_company_in_a_batch_changes_nothing(encoder: SentenceEncoder) -> None:
    texts = ["a", "How do I rotate my API key?", "GPU " * 50]
    alone = np.vstack([encoder.encode([text]) for text in texts])
    assert np.allclose(encoder.encode(texts), alone, atol=1e-5)


def test_no_text_is_no_vector(encoder: SentenceEncoder) -> None:
    assert encoder.encode([]).shape == (0, 384)


def test_tokens_are_counted_without_padding(encoder: SentenceEncoder) -> None:
    assert encoder.count_tokens(["How do I rotate my API key?", "hello"]) == 10 + 3


def copy_of_the_model(folder: Path, file: str, **changes: Any) -> Path:
    """The model's folder with some keys of one file changed."""
    shutil.copytree(
        shipped_model_dir(), folder, ignore=shutil.ignore_patterns("*.safetensors", "vocab.txt")
    )
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"model_type": "mpnet"}),
        ("config.json", {"hidden_act": "relu"}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}),
    ],
    ids=["another kind of model", "another activation", "another pooling"],
)
def test_refuses_a_model_that_it_would_compute_wrongly(
    tmp_path: Path, file: str, changes: dict[str, Any]
) -> None:
    folder = copy_of_the_model(tmp_path / "model", file, **changes)
    with pytest.raises(EncoderUnusable, match=next(iter(changes))):
        SentenceEncoder(folder)


def test_says_which_folder_holds_no_model(tmp_path: Path) -> None:
    with pytest.raises(EncoderUnusable, match=str(tmp_path)):
        SentenceEncoder(tmp_path)
