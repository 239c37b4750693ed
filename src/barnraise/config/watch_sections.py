"""The sections of a run file about seeing the run, and about being told of it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from barnraise.config.section import Section
from barnraise.config.values import Share, Text, Url


class DashboardSection(Section):
    """The page of the run, and its metrics, on a port of the controller's machine (extra `dashboard`)."""

    enabled: bool | None = Field(
        default=None,
        description="Serve them while a controller works; when not given, where the extra is installed.",
    )
    host: Text = Field(
        default="127.0.0.1",
        description="Address to listen on; by default only this machine reaches it. Elsewhere requests need a token: "
        "that in keys/dashboard.token, or one of a link.",
    )
    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="TCP port; 0 takes a free one. When not given 8710, or a free one while that is taken.",
    )
    certificate: Text | None = Field(default=None, description="File with a certificate for TLS, in PEM; with `key`.")
    key: Text | None = Field(default=None, description="File with the certificate's private key, in PEM.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: give both, or none")
        return self


class AlertsSection(Section):
    """Messages to the host: no progress, refusals, quarantined or lost workers, a full disk, the standby, the end."""

    webhook_file: Text | None = Field(
        default=None,
        description="File with the URL that alerts are posted to, as JSON in the form of Prometheus' Alertmanager. The "
        "URL itself is in no run file and on no ledger.",
    )
    email_to: Annotated[list[Text], Field(max_length=20)] = Field(
        default=[], description="Addresses that alerts are mailed to."
    )
    email_from: Text | None = Field(default=None, description="Sender's address; the first of email_to when not given.")
    smtp: Text = Field(default="localhost:25", description="Mail server, as HOST:PORT; with TLS where it offers that.")
    smtp_user: Text | None = Field(default=None, description="User name at the mail server.")
    smtp_password_file: Text | None = Field(default=None, description="File with the password of that user.")


class TracingSection(Section):
    """Spans of each assignment's way for an OpenTelemetry collector, by OTLP over HTTP (extra `otel`)."""

    enabled: bool | None = Field(
        default=None, description="Send them while a controller works; when not given, where an endpoint is given here."
    )
    endpoint: Url | None = Field(
        default=None,
        description="The collector's URL, such as http://localhost:4318. When not given that of the environment's "
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, else port 4318 of the controller's "
        "machine.",
    )
    share: Share = Field(default=1.0, description="Share of the assignments that get spans.")

    @property
    def wanted(self) -> bool:
        """Return whether spans are to be sent."""
        return self.endpoint is not None if self.enabled is None else self.enabled
