# SPDX-License-Identifier: Apache-2.0
"""Notifications: routes and receivers of a piped, mentions of an application."""

from __future__ import annotations

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.values import Base64Secret, Secret

EVENTS = (
    "DEPLOYMENT_TRIGGERED",
    "DEPLOYMENT_PLANNED",
    "DEPLOYMENT_STARTED",
    "DEPLOYMENT_APPROVED",
    "DEPLOYMENT_WAIT_APPROVAL",
    "DEPLOYMENT_ROLLING_BACK",
    "DEPLOYMENT_SUCCEEDED",
    "DEPLOYMENT_FAILED",
    "DEPLOYMENT_CANCELLED",
    "DEPLOYMENT_TRIGGER_FAILED",
    "APPLICATION_SYNCED",
    "APPLICATION_OUT_OF_SYNC",
    "APPLICATION_HEALTHY",
    "PIPED_STARTED",
    "PIPED_STOPPED",
    "STAGE_STARTED",
    "STAGE_SKIPPED",
    "STAGE_SUCCEEDED",
    "STAGE_FAILED",
    "STAGE_CANCELLED",
)
GROUPS = ("NONE", "DEPLOYMENT", "APPLICATION_SYNC", "APPLICATION_HEALTH", "PIPED", "STAGE")
ANY_EVENT = "*"


class SlackConfig(ConfigModel):
    """A Slack channel: through an incoming webhook, or a token and a channel."""

    hook_url: Secret | None = None
    """The address of an incoming webhook."""
    oauth_token: Secret | None = None
    """The token itself; `oauthTokenFile` is better."""
    oauth_token_data: Base64Secret | None = None
    """Base64 of the token."""
    oauth_token_file: str = ""
    """The file with the token."""
    channel_id: str = ""
    """Where messages go; needed with a token."""
    mentioned_accounts: tuple[str, ...] = ()
    """People who are named in every message."""
    mentioned_groups: tuple[str, ...] = ()
    """Groups that are named in every message."""

    def check(self, report: Report) -> None:
        tokens = [
            key
            for key, value in (
                ("oauthToken", self.oauth_token),
                ("oauthTokenData", self.oauth_token_data),
                ("oauthTokenFile", self.oauth_token_file),
            )
            if value or report.is_broken(key)
        ]
        if self.hook_url and (tokens or self.channel_id):
            other = tokens[0] if tokens else "channelID"
            report.fault(other, message=f"hookURL and {other} exclude each other", hint="keep one")
        elif len(tokens) > 1:
            report.fault(tokens[1], message=f"{tokens[0]} and {tokens[1]} exclude each other")
        elif tokens and not self.channel_id and not report.is_broken("channelID"):
            report.fault("channelID", message="missing", hint="a token needs a channel to write to")
        elif not tokens and not self.hook_url and not report.is_broken("hookURL"):
            report.fault(message="needs hookURL, or channelID with a token")


class WebhookConfig(ConfigModel):
    """An HTTP address that events are posted to."""

    url: Secret
    """Where events are posted to."""
    signature_key: str = "PipeCD-Signature"
    """The header's name."""
    signature_value: Secret | None = None
    """What the header says."""
    signature_value_file: str = ""
    """The file with what the header says."""

    def check(self, report: Report) -> None:
        if self.signature_value and self.signature_value_file:
            report.fault(
                "signatureValueFile",
                message="signatureValue and signatureValueFile exclude each other",
            )


class ReceiverConfig(ConfigModel):
    """Where messages go."""

    name: str
    """What routes call it."""
    slack: SlackConfig | None = None
    webhook: WebhookConfig | None = None

    def check(self, report: Report) -> None:
        if self.slack is not None and self.webhook is not None:
            report.warn("webhook", message="ignored, slack is given too", hint="keep one of them")
        unread = report.is_broken("slack") or report.is_broken("webhook")
        if self.slack is None and self.webhook is None and not unread:
            report.fault(message="needs slack or webhook")


class RouteConfig(ConfigModel):
    """Which events go to which receiver; an empty list sets no limit."""

    name: str
    """What the log calls it."""
    receiver: str
    """The name of a receiver."""
    events: tuple[str, ...] = ()
    """Only these."""
    ignore_events: tuple[str, ...] = ()
    """All but these."""
    groups: tuple[str, ...] = ()
    """Only events of these groups."""
    ignore_groups: tuple[str, ...] = ()
    """All but events of these groups."""
    apps: tuple[str, ...] = ()
    """Only these applications."""
    ignore_apps: tuple[str, ...] = ()
    """All but these applications."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Only applications with all of these labels."""
    ignore_labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Not applications with any of these labels."""

    def check(self, report: Report) -> None:
        for key, names, known in (
            ("events", self.events, EVENTS),
            ("ignoreEvents", self.ignore_events, EVENTS),
            ("groups", self.groups, GROUPS),
            ("ignoreGroups", self.ignore_groups, GROUPS),
        ):
            for index, name in enumerate(names):
                rules.one_of(report, key, index, value=name, known=known)


class NotificationsConfig(ConfigModel):
    """Who is told about what."""

    routes: tuple[RouteConfig, ...] = ()
    receivers: tuple[ReceiverConfig, ...] = ()

    def check(self, report: Report) -> None:
        names = [receiver.name for receiver in self.receivers]
        if report.is_broken("receivers"):
            return
        for index, route in enumerate(self.routes):
            if route.receiver and route.receiver not in names:
                report.fault(
                    "routes",
                    index,
                    "receiver",
                    message=f"there is no receiver {route.receiver!r}",
                    hint=rules.nearest(route.receiver, names),
                )


class MentionConfig(ConfigModel):
    """Who is named in the messages about an event."""

    event: str
    """The name of an event, or `*` for all."""
    slack: tuple[str, ...] = ()
    """An older spelling of `slackusers`."""
    slack_users: tuple[str, ...] = msgspec.field(name="slackusers", default=())
    """Ids of people in Slack."""
    slack_groups: tuple[str, ...] = msgspec.field(name="slackgroups", default=())
    """Ids of groups in Slack."""
    email: tuple[str, ...] = ()
    """Kept for older files; not used."""

    def check(self, report: Report) -> None:
        rules.one_of(report, "event", value=self.event, known=(*EVENTS, ANY_EVENT))


class ApplicationNotificationConfig(ConfigModel):
    """Whom an application wants to be told."""

    mentions: tuple[MentionConfig, ...] = ()
