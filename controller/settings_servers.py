"""Settings of the servers: where Prometheus and Serve are, and our own HTTP server."""

from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from controller.settings_types import ReadableFile, Section, Url


def _together(certificate_file: Path | None, key_file: Path | None) -> None:
    if (certificate_file is None) != (key_file is None):
        raise ValueError("certificate_file and key_file go together")


class PrometheusSettings(Section):
    """Where the metrics are."""

    url: Url = Field("http://127.0.0.1:9090", description="base URL of Prometheus's HTTP API")
    scrape_s: float = Field(
        10.0, ge=0.5, le=120, description="seconds between two scrapes of Ray's targets"
    )
    timeout_s: float = Field(5.0, gt=0, le=60, description="seconds until a query is given up")
    selector: dict[str, str] = Field(
        default_factory=dict,
        description="labels put into every query, so that exactly one Ray cluster matches",
    )
    client_ttft: str = Field(
        "ray_client_ttft_seconds_bucket",
        pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*_bucket$",
        description="histogram of the first-token time that clients feel, in seconds, with "
        "labels application and deployment; without it the SLO is bounded from router wait and "
        "engine time",
    )
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="sent with every query")
    tenant: str | None = Field(None, description="sent as X-Scope-OrgID (Mimir, Cortex)")
    bearer: SecretStr | None = Field(None, description="token; better bearer_file")
    bearer_file: ReadableFile | None = Field(
        None, description="file with the token, read again at every query"
    )
    username: str | None = Field(None, description="for basic authentication")
    password: SecretStr | None = Field(None, description="for basic authentication")
    ca_file: ReadableFile | None = Field(None, description="certificates to trust (PEM)")
    certificate_file: ReadableFile | None = Field(None, description="client certificate (PEM)")
    key_file: ReadableFile | None = Field(None, description="key of the client certificate (PEM)")


class ServeSettings(Section):
    """Where Ray Serve is."""

    url: Url = Field("http://127.0.0.1:8265", description="base URL of Ray's dashboard")
    timeout_s: float = Field(5.0, gt=0, le=60, description="seconds until a request is given up")
    token: SecretStr | None = Field(None, description="Ray's auth token; better token_file")
    token_file: ReadableFile | None = Field(None, description="file with Ray's auth token")
    ca_file: ReadableFile | None = Field(None, description="certificates to trust (PEM)")
    certificate_file: ReadableFile | None = Field(
        None, description="client certificate (PEM), for a proxy in front that asks for one"
    )
    key_file: ReadableFile | None = Field(None, description="key of the client certificate (PEM)")
    elastic: bool = Field(
        False,
        description="true if the cluster adds nodes when replicas wait for room; false: never "
        "more replicas are asked for than the free resources hold",
    )

    @model_validator(mode="after")
    def _both(self) -> "ServeSettings":
        _together(self.certificate_file, self.key_file)
        return self


class HttpSettings(Section):
    """Our own HTTP server."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback by default")
    port: int = Field(8199, ge=0, le=65535, description="port to listen on; 0: any free one")
    read_token: SecretStr | None = Field(
        None,
        description="bearer token without which nothing but health is answered; better "
        "read_token_file",
    )
    read_token_file: ReadableFile | None = Field(
        None, description="file with that token, read again at every request"
    )
    token: SecretStr | None = Field(
        None,
        description="bearer token of operators (pin, pause, resume), who can do nothing without "
        "it; better token_file",
    )
    token_file: ReadableFile | None = Field(
        None, description="file with that token, read again at every request"
    )
    certificate_file: ReadableFile | None = Field(
        None, description="our certificate (PEM); with key_file: HTTPS instead of HTTP"
    )
    key_file: ReadableFile | None = Field(None, description="key of our certificate (PEM)")
    client_ca_file: ReadableFile | None = Field(
        None, description="certificates (PEM) one of which a client must have been given"
    )

    @model_validator(mode="after")
    def _both(self) -> "HttpSettings":
        _together(self.certificate_file, self.key_file)
        if self.client_ca_file is not None and self.certificate_file is None:
            raise ValueError("client_ca_file needs certificate_file and key_file")
        return self
