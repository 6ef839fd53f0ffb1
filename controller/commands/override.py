"""`leadtime pin`, `pause` and `resume`: an operator's word, for a while, through the daemon."""

import getpass
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx

from controller.commands.recordings import LoadError, duration_s
from controller.settings import HttpSettings, SettingsError, load

PATH = "/api/v1/overrides"


def override(
    config: Path | None,
    url: str | None,
    target: str,
    effect: str,
    replicas: int | None,
    for_: str | None,
    why: str,
) -> int:
    """Ask the daemon; 0 if it did, 1 if it refused or does not answer."""
    http = load(config).http
    application, slash, deployment = target.partition("/")
    if not (application and slash and deployment):
        raise SettingsError(f"{target!r}: write it as APP/DEPLOYMENT")
    body: dict[str, Any] = {
        "application": application,
        "deployment": deployment,
        "effect": effect,
        "why": why,
        "by": f"{getpass.getuser()}@{socket.gethostname()}",
    }
    if for_ is not None:
        body["for_s"] = _seconds(for_)
    if replicas is not None:
        body["replicas"] = replicas
    code, said = _ask(url or _own_url(http), _token(http), _trust(http), body)
    print(said)
    return code


def _seconds(text: str) -> float:
    try:
        return duration_s("--for", text)
    except LoadError as error:
        raise SettingsError(str(error)) from error


def _own_url(http: HttpSettings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)
    scheme = "http" if http.certificate_file is None else "https"
    return f"{scheme}://[{host}]:{http.port}" if ":" in host else f"{scheme}://{host}:{http.port}"


def _trust(http: HttpSettings) -> ssl.SSLContext:
    """The system's certificates, and the daemon's own."""
    trust = ssl.create_default_context()
    if http.certificate_file is not None:
        trust.load_verify_locations(cafile=str(http.certificate_file))
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return trust


def _token(http: HttpSettings) -> str:
    if http.token_file is not None:
        return http.token_file.read_text(encoding="utf-8").strip()
    return http.token.get_secret_value() if http.token else ""


def _ask(url: str, token: str, trust: ssl.SSLContext, body: dict[str, Any]) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.post(
            url + PATH, json=body, headers=headers, timeout=10, trust_env=False, verify=trust
        )
        said = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        return 1, f"{url}: {type(error).__name__}: {error}; is the daemon there? (--url)"
    if answer.status_code != 200:
        return 1, f"refused: {said.get('error', answer.status_code)}"
    if body["effect"] == "resume":
        return 0, "resumed" if said["resumed"] else "nothing was pinned or paused"
    left_s = said["until_s"] - said["from_s"]
    return 0, f"{body['effect']}: {body['application']}/{body['deployment']} for {left_s:g} s"
