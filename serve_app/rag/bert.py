"""A BERT sentence encoder's weights (safetensors) as an ONNX graph, so that CPUs need no torch.

The graph is what sentence-transformers computes for such a folder: BERT, mean over the tokens
that are no padding, length 1 (test_encoder.py compares the vectors with recorded ones).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

# The first opset with Attention; IR version 11 is what reads it.
OPSET = 23
IR_VERSION = 11

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class BertShape:
    """What the weights do not say themselves."""

    layers: int
    heads: int
    norm_epsilon: float


def sentence_graph(weights: Weights, shape: BertShape) -> bytes:
    """A model of `input_ids`, `attention_mask` (int64 [n, tokens]) -> `vectors` (float32 [n, d]).

    KeyError if a weight is missing.
    """
    graph = _Graph(weights)
    hidden = _embeddings(graph, shape)
    mask = _attention_mask(graph)
    for layer in range(shape.layers):
        hidden = _layer(graph, f"encoder.layer.{layer}", hidden, mask, shape)
    _mean_of_length_one(graph, hidden)
    return graph.model()


@dataclass(slots=True)
class _Graph:
    """Nodes and constants in the making."""

    weights: Weights
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def node(
        self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: object
    ) -> str:
        name = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: NDArray[np.generic]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        value = self.weights[name]
        key = f"{name}.T" if transposed else name
        if key not in self.constants:
            value = np.ascontiguousarray(value.T) if transposed else value
            self.constants[key] = numpy_helper.from_array(value, key)
        return key

    def linear(self, name: str, hidden: str) -> str:
        product = self.node("MatMul", [hidden, self.weight(f"{name}.weight", transposed=True)])
        return self.node("Add", [product, self.weight(f"{name}.bias")])

    def norm(self, name: str, hidden: str, epsilon: float) -> str:
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", [hidden, scale, shift], epsilon=epsilon, axis=-1)

    def model(self) -> bytes:
        both = ["n", "tokens"]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, both)
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", None])
        graph = helper.make_graph(
            self.nodes, "sentence", inputs, [output], list(self.constants.values())
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
        return bytes(model.SerializeToString())


def _embeddings(graph: _Graph, shape: BertShape) -> str:
    """Word + position + (one) segment, normed; a sentence is segment 0."""
    words = graph.node("Gather", [graph.weight("embeddings.word_embeddings.weight"), "input_ids"])
    size = graph.node("Shape", ["input_ids"], start=1, end=2)
    zero, axis = graph.constant(np.array([0])), graph.constant(np.array([0]))
    positions = graph.node(
        "Slice", [graph.weight("embeddings.position_embeddings.weight"), zero, size, axis]
    )
    segment = graph.constant(graph.weights["embeddings.token_type_embeddings.weight"][0])
    summed = graph.node("Add", [graph.node("Add", [words, positions]), segment])
    return graph.norm("embeddings.LayerNorm", summed, shape.norm_epsilon)


def _attention_mask(graph: _Graph) -> str:
    """Every token looks at every token that is no padding: bool [n, 1, tokens, tokens]."""
    keys = graph.node("Cast", ["attention_mask"], to=TensorProto.BOOL)
    keys = graph.node("Unsqueeze", [keys, graph.constant(np.array([1, 2]))])
    one, size = graph.constant(np.array([1])), graph.node("Shape", ["input_ids"], start=1, end=2)
    shape = graph.node("Concat", [one, one, size, one], axis=0)
    return graph.node("Expand", [keys, shape])


def _layer(graph: _Graph, name: str, hidden: str, mask: str, shape: BertShape) -> str:
    query, key, value = (
        graph.linear(f"{name}.attention.self.{part}", hidden) for part in ("query", "key", "value")
    )
    attended = graph.node(
        "Attention", [query, key, value, mask], q_num_heads=shape.heads, kv_num_heads=shape.heads
    )
    attended = graph.linear(f"{name}.attention.output.dense", attended)
    hidden = graph.node("Add", [attended, hidden])
    hidden = graph.norm(f"{name}.attention.output.LayerNorm", hidden, shape.norm_epsilon)
    inner = graph.node("Gelu", [graph.linear(f"{name}.intermediate.dense", hidden)])
    outer = graph.node("Add", [graph.linear(f"{name}.output.dense", inner), hidden])
    return graph.norm(f"{name}.output.LayerNorm", outer, shape.norm_epsilon)


def _mean_of_length_one(graph: _Graph, hidden: str) -> None:
    mask = graph.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    last, tokens = graph.constant(np.array([2])), graph.constant(np.array([1]))
    masked = graph.node("Mul", [hidden, graph.node("Unsqueeze", [mask, last])])
    summed = graph.node("ReduceSum", [masked, tokens], keepdims=0)
    graph.node("LpNormalization", [summed], "vectors", axis=1, p=2)
