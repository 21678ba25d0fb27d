# SPDX-License-Identifier: Apache-2.0
"""What a query knows while it is rendered: the application, the variant, their arguments. Pure."""

from collections.abc import Mapping
from typing import Final

from pipecd_sdk.kit.templates import BadTemplateError, render

NO_VALUE: Final = "<no value>"
"""What Go's templates print for an argument that is not given."""


class BadQueryError(ValueError):
    """A query cannot be rendered; the message is for its author."""


def make_arguments(
    *,
    application: str,
    variant: str = "primary",
    variant_arguments: Mapping[str, str],
    application_arguments: Mapping[str, str],
) -> dict[str, object]:
    """Returns the data of a query's template."""
    return {
        "App": {"Name": application},
        "Variant": {"Name": variant},
        "VariantCustomArgs": dict(variant_arguments),
        "VariantArgs": dict(variant_arguments),  # as documents for users spell it
        "AppCustomArgs": dict(application_arguments),
        "K8s": {"Namespace": application_arguments.get("k8sNamespace", "")},
    }


def render_query(text: str, arguments: Mapping[str, object], *, name: str) -> str:
    """Returns a query with its arguments in place. Raises BadQueryError.

    An argument that is not given would make another query than its author meant, and an answer that
    looks good: so it is a fault here. Conditions may still ask whether one is given.
    """
    try:
        rendered = render(text, arguments, name=name, missing_key_error=False)
    except BadTemplateError as error:
        raise BadQueryError(str(error)) from None
    if NO_VALUE in rendered and NO_VALUE not in text:
        raise BadQueryError(
            f"{name}: it names an argument that is not given: {rendered[:300]!r} (known are"
            " .App.Name, .Variant.Name, .VariantCustomArgs, .AppCustomArgs and .K8s.Namespace)"
        )
    return rendered
