"""`python -m dashboards`: write json/, one file a dashboard, and PROOF.md."""

from pathlib import Path

from dashboards.build import DASHBOARDS, render
from dashboards.lint import problems
from dashboards.proof import table

HERE = Path(__file__).parent


def files() -> dict[Path, str]:
    """Everything generated, by path."""
    made = {HERE / "json" / f"{board.uid}.json": render(board) for board in DASHBOARDS}
    return {**made, HERE / "PROOF.md": table()}


def main() -> None:
    """Write every file; refuse if a dashboard breaks a rule."""
    found = [said for board in DASHBOARDS for said in problems(board)]
    if found:
        raise SystemExit("\n".join(found))
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
