"""A real Llama of no use: tiny, random, made here. For tests, demo and trying a config on a CPU.

`python -m serve_app.tiny_model [FOLDER]` makes it and prints its folder.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TINY = "tiny-random"
"""The `source` that means this model."""
RECIPE = 1
"""Raised with every change below, so that no cached model is taken for the new one."""
CONTEXT_TOKENS = 2048
SEED = 1
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
SUBJECTS = ("the model", "a replica", "one request", "every client", "the queue", "our cluster")
VERBS = ("waits for", "answers", "starts before", "asks", "counts", "remembers")
OBJECTS = ("the first token", "a long prompt", "the next ramp", "many small batches")


def ensure_tiny_model(folder: Path | None = None) -> Path:
    """The folder of the model, made if it is not there; safe when several ask at once."""
    folder = folder or cache_folder() / f"{TINY}-{RECIPE}"
    if not (folder / "config.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            _make(made)
            made.chmod(0o755)
            made.rename(folder)
        except OSError:
            if not (folder / "config.json").exists():
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def cache_folder() -> Path:
    """LEADTIME_MODELS, or `.models` beside the package."""
    chosen = os.environ.get("LEADTIME_MODELS")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[1] / ".models"


def _make(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),  # else an id that is sampled has no token
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer() -> Any:
    """A byte-level BPE, so that every text has tokens, trained on a few sentences."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_sentences(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=CONTEXT_TOKENS,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _sentences() -> Iterator[str]:
    for subject in SUBJECTS:
        for verb in VERBS:
            for thing in OBJECTS:
                yield f"{subject} {verb} {thing}. user: hello, assistant: {thing}?"


if __name__ == "__main__":
    print(ensure_tiny_model(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
