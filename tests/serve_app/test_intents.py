"""The shipped phrases teach what they should; a file that cannot be learned from says so."""

from pathlib import Path

import pytest

from serve_app.graph.intents import (
    SHIPPED,
    BadPhrases,
    FaqModel,
    IntentModel,
    PhraseBook,
    main,
    read_phrases,
)
from serve_app.graph.settings import RouterSettings

ROUTER = RouterSettings()

# Written apart from the phrases; none is in the file (a test says so).
FAQ_QUESTIONS = {
    "how can I make another api key": "Open the console, choose Keys",
    "hit a 429, what to do": "Wait as long",
    "does anybody train models with our prompts": "No. Prompts",
    "is the api down at the moment": "The status page",
    "how do i reset the password": "Open the login page",
    "what is the context window of the model": "32 768 tokens",
    "can I get a refund for credit we did not use": "Unused prepaid credit",
    "our api key was stolen": "Delete it",
    "which region is my data stored in": "In the region",
    "how do we raise the rate limit": "Ask for it",
    "is there a way to cap spending per month": "Set a cap",
    "where can i download the invoice": "The invoice",
}
TASKS = (
    "Implement quicksort in Rust",
    "Explain how TCP congestion control works",
    "Write a limerick about a cat",
    "Summarise this chapter in two paragraphs",
    "Compare Kafka and RabbitMQ for our use case",
    "Translate the attached letter into Polish",
    "Refactor this class so that it has fewer dependencies",
    "Why did the Bronze Age collapse?",
    "Draft a job advert for a site reliability engineer",
    "Write a SQL query for the ten best customers",
    "How does a nuclear reactor work?",
    "Plan a birthday dinner for eight people",
    "Give me five titles for this blog post",
    "Prove that there are infinitely many primes",
)
SMALLTALK = ("hello you", "thank you so much", "good morning!", "tell me another joke", "bye then")


@pytest.fixture(scope="module")
def book() -> PhraseBook:
    return read_phrases(SHIPPED)


@pytest.fixture(scope="module")
def model(book: PhraseBook) -> IntentModel:
    return IntentModel.trained(book)


@pytest.fixture(scope="module")
def faq(book: PhraseBook) -> FaqModel:
    return FaqModel(book)


def test_what_is_asked_here_was_not_learned(book: PhraseBook) -> None:
    learned = {phrase.lower() for phrase in book.labelled()[0]}
    assert not learned & {text.lower() for text in (*FAQ_QUESTIONS, *TASKS, *SMALLTALK)}


def sure_of(model: IntentModel, text: str) -> str | None:
    intent = model.classify(text)
    return intent.name if intent.confidence >= ROUTER.min_confidence else None


def test_most_of_the_unseen_goes_where_it_is_cheap(model: IntentModel) -> None:
    right = sum(sure_of(model, text) == "faq" for text in FAQ_QUESTIONS)
    right += sum(sure_of(model, text) == "smalltalk" for text in SMALLTALK)
    assert right >= 0.8 * (len(FAQ_QUESTIONS) + len(SMALLTALK))


def test_a_task_never_gets_an_faq_answer(model: IntentModel, faq: FaqModel) -> None:
    """The costly error: a hard question with a canned answer. Both gates must open for it."""
    canned = [
        text
        for text in TASKS
        if sure_of(model, text) == "faq" and faq.answer(text, ROUTER.min_similarity)
    ]
    assert canned == []


def test_an_faq_answer_is_the_right_one(faq: FaqModel) -> None:
    """Far from any question it has none, which costs money; a wrong one costs trust."""
    answers = {text: faq.answer(text, ROUTER.min_similarity) for text in FAQ_QUESTIONS}
    given = {text: answer for text, answer in answers.items() if answer}
    assert all(given[text].startswith(FAQ_QUESTIONS[text]) for text in given)
    assert len(given) >= 0.7 * len(FAQ_QUESTIONS)


def test_every_shipped_question_finds_its_answer(book: PhraseBook, faq: FaqModel) -> None:
    for entry in book.faq:
        for question in entry.questions:
            assert faq.answer(question, 0.9) == entry.answer


@pytest.mark.parametrize("text", ["", "zxcv qwer", "???", "你好"], ids=repr)
def test_what_it_does_not_know_it_is_not_sure_of(model: IntentModel, text: str) -> None:
    assert sure_of(model, text) is None


def test_training_is_repeatable(book: PhraseBook, model: IntentModel) -> None:
    again = IntentModel.trained(book)
    assert all(again.classify(text) == model.classify(text) for text in TASKS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("faq: []\nintents: {task: [a, b, c, d]}", "faq"),
        ("faq: [{answer: x, questions: []}]\nintents: {task: [a, b, c, d]}", "questions"),
        ("faq: [{answer: x, questions: [y]}]\nintents: {task: [a]}", r"intents\.task"),
        ("faq: [{answer: x, questions: [y]}]\nintents: {faq: [a, b, c, d]}", r"intents\.faq"),
        ("faq: {", "phrases.yaml"),
        ("- a", "the file"),
    ],
    ids=["no entry", "no question", "too few phrases", "faq twice", "no YAML", "no mapping"],
)
def test_a_bad_file_names_the_entry(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text(content)
    with pytest.raises(BadPhrases, match=says):
        read_phrases(path)


def test_the_command_reports_what_is_confused(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    report = capsys.readouterr().out
    assert "precision" in report
    assert "smalltalk" in report
