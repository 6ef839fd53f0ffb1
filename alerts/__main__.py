"""`python -m alerts` writes rules.yml and alertmanager.yml; with `--print` it prints rules."""

import argparse
from pathlib import Path

from alerts.generate import RUNBOOK, render_alertmanager, render_rules

HERE = Path(__file__).parent


def main() -> None:
    """Write the committed files, or print the rules at a scale."""
    parser = argparse.ArgumentParser(prog="python -m alerts", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the rules, write nothing")
    parser.add_argument("--scale", type=int, default=1, help="divide every printed duration by it")
    parser.add_argument("--runbook", default=RUNBOOK, help="URL where you keep runbook.md")
    chosen = parser.parse_args()
    if chosen.print:
        print(render_rules(chosen.scale, chosen.runbook), end="")
        return
    (HERE / "rules.yml").write_text(render_rules(), encoding="utf-8")
    (HERE / "alertmanager.yml").write_text(render_alertmanager(), encoding="utf-8")


if __name__ == "__main__":
    main()
