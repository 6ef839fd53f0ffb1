"""Takes the README's picture of the status page: python -m tests.page FILE.png"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from controller.core.types import DeploymentId
from tests.page.test_browser import FLAGS, busy, opened, served


def main(file: Path) -> None:
    """Write the picture."""
    size = {"width": 1120, "height": 880}
    target = DeploymentId("chat", "LLMServer:qwen-0_5b")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(busy(Path(folder) / "leadtime.db", target)) as site,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        opened(chromium, site.url, size).page.screenshot(path=file)
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
