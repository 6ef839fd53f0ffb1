"""What the sections of the settings are made of."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr


def _is_http(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    if "@" in url.split("://", 1)[1].split("/", 1)[0]:
        raise ValueError("must not hold a password: set it beside, where it is never shown")
    return url.rstrip("/")


def _exists(path: Path) -> Path:
    if not path.is_file():
        raise ValueError("no such file")
    return path


def _is_secret_http(url: SecretStr) -> SecretStr:
    return SecretStr(_is_http(url.get_secret_value()))


Url = Annotated[str, AfterValidator(_is_http)]
SecretUrl = Annotated[SecretStr, AfterValidator(_is_secret_http)]
ReadableFile = Annotated[Path, AfterValidator(_exists)]


class Section(BaseModel):
    """A group of settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
