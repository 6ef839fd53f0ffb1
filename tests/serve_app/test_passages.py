"""Documents to passages, passages to an index, and the index's word on who made it."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from serve_app.rag.app import build
from serve_app.rag.encoder import SentenceEncoder, shipped_model_dir
from serve_app.rag.index import BadIndex, Hit, PassageIndex, encoder_digest, index_documents, main
from serve_app.rag.passages import HANDBOOK, BadDocuments, Passage, read_passages
from serve_app.rag.settings import RagSettings
from serve_app.settings import AppSettings, InvalidArgs


@pytest.fixture(scope="module")
def handbook() -> PassageIndex:
    return index_documents(HANDBOOK, shipped_model_dir())


def random_index(count: int, kind: str = "flat", seed: int = 1) -> tuple[PassageIndex, np.ndarray]:
    vectors = np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    passages = [Passage(f"d#{number}", f"text {number}") for number in range(count)]
    return PassageIndex.of(passages, vectors, "digest", kind), vectors  # type: ignore[arg-type]


def ids(hits: list[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def test_a_passage_is_a_paragraph_under_its_heading(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("intro\n\n# One\n\nfirst\nline\n\nsecond\n\n## Two\nthird\n")
    assert [(one.id, one.text) for one in read_passages(tmp_path)] == [
        ("a.md#1", "intro"),
        ("a.md#2", "One: first line second"),
        ("a.md#3", "Two: third"),
    ]


def test_passages_are_no_longer_than_asked_and_lose_no_word(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(250)]
    text = " ".join(words[:30]) + "\n\n" + " ".join(words[30:100]) + "\n\n" + " ".join(words[100:])
    (tmp_path / "a.txt").write_text(text)
    passages = read_passages(tmp_path, max_words=60)
    assert all(len(one.text.split()) <= 60 for one in passages)
    assert " ".join(one.text for one in passages).split() == words
    assert len(passages[0].text.split()) == 30  # a paragraph that fits no more stays whole


def test_a_folder_without_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(BadDocuments, match=str(tmp_path)):
        read_passages(tmp_path)


def test_nearest_is_the_largest_cosine() -> None:
    index, vectors = random_index(50)
    hits = index.nearest(vectors[7], 5)
    cosines = vectors @ vectors[7]
    assert ids(hits) == [f"d#{place}" for place in np.argsort(-cosines)[:5]]
    assert [hit.score for hit in hits] == pytest.approx(sorted(cosines, reverse=True)[:5], abs=1e-5)


def test_asks_for_no_more_than_there_are() -> None:
    index, vectors = random_index(3)
    assert len(index.nearest(vectors[0], 10)) == 3


def test_hnsw_finds_nearly_what_flat_does() -> None:
    flat, vectors = random_index(3000)
    hnsw, _ = random_index(3000, "hnsw")
    found = [
        len(set(ids(flat.nearest(vector, 10))) & set(ids(hnsw.nearest(vector, 10))))
        for vector in vectors[:50]
    ]
    assert np.mean(found) >= 8.5


def test_an_index_survives_disk_and_pickle(tmp_path: Path) -> None:
    index, vectors = random_index(20)
    index.save(tmp_path)
    for other in (PassageIndex.load(tmp_path), pickle.loads(pickle.dumps(index))):
        assert other.nearest(vectors[3], 4) == index.nearest(vectors[3], 4)
        assert other.encoder_digest == "digest"


@pytest.mark.parametrize(
    ("question", "passage"),
    [
        ("somebody stole our key", "keys.md#3"),
        ("why are my requests refused with 429?", "limits.md#2"),
        ("how long do you keep prompts", "privacy.md#1"),
        ("the bill is too high, can I limit it", "billing.md#3"),
        ("it takes minutes until a new replica is ready", "operations.md#1"),
    ],
)
def test_the_shipped_handbook_answers(handbook: PassageIndex, question: str, passage: str) -> None:
    [vector] = SentenceEncoder(shipped_model_dir()).encode([question])
    assert passage in ids(handbook.nearest(vector, 3))


def test_the_command_writes_what_the_application_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, out = tmp_path / "documents", tmp_path / "index"
    documents.mkdir()
    (documents / "a.md").write_text("# Opening hours\n\nWe are open from nine to five.\n")
    main(["--documents", str(documents), "--out", str(out)])
    assert "1 passages" in capsys.readouterr().out
    assert PassageIndex.load(out).encoder_digest == encoder_digest(shipped_model_dir())
    build({"index": {"dir": str(out)}})


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"index: .*no text in any"):
        main(["--documents", str(tmp_path), "--out", str(tmp_path / "out")])


def test_an_index_of_another_encoder_is_refused(tmp_path: Path) -> None:
    random_index(3)[0].save(tmp_path)
    with pytest.raises(BadIndex, match=r"made by encoder digest.*make it anew"):
        build({"index": {"dir": str(tmp_path)}})


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadIndex, match=r"index\.dir"):
        build({"index": {"dir": str(tmp_path)}})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"index": {"passages": 0}}, r"serve_app\.rag\.app:build: index\.passages: "),
        ({"encoder": {"thread": 2}}, r"encoder\.thread: unknown key"),
        ({"engine": {"slots": 0}}, r"engine\.slots"),
        ({"model": "all-minilm-l6-v2"}, "must differ"),
    ],
    ids=["out of bounds", "unknown key", "the LLM's own", "one name for two"],
)
def test_wrong_args_name_the_key(args: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArgs, match=says):
        build(args)


def test_the_llm_is_given_its_own_part_and_no_more() -> None:
    part = RagSettings(model="rag", slo_ttft_s=(2.0,)).llm()
    assert type(part) is AppSettings
    assert (part.model, part.slo_ttft_s) == ("rag", (2.0,))
