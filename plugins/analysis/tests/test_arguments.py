# SPDX-License-Identifier: Apache-2.0
"""Queries are templates that know the application and the variant."""

import pytest
from pipecd_plugin_analysis.arguments import BadQueryError, make_arguments, render_query

ARGUMENTS = make_arguments(
    application="shop",
    variant="canary",
    variant_arguments={"pod": "shop-canary"},
    application_arguments={"k8sNamespace": "prod", "uri": "/pay"},
)


@pytest.mark.parametrize(
    ("query", "rendered"),
    [
        ("up", "up"),
        ('up{app="{{ .App.Name }}"}', 'up{app="shop"}'),
        ("{{.Variant.Name}}", "canary"),
        ("{{ .VariantCustomArgs.pod }}|{{ .VariantArgs.pod }}", "shop-canary|shop-canary"),
        ("{{ .AppCustomArgs.uri }} in {{ .K8s.Namespace }}", "/pay in prod"),
        ("a {{- .App.Name -}} b", "ashopb"),
        ("{{ if .AppCustomArgs.other }}x{{ else }}y{{ end }}", "y"),
    ],
)
def test_a_query_is_rendered(query: str, rendered: str) -> None:
    assert render_query(query, ARGUMENTS, name="metrics-0") == rendered


@pytest.mark.parametrize("query", ["{{ .AppCustomArgs.typo }}", "{{ .App.Env }}", "{{ .Args.x }}"])
def test_an_argument_that_is_not_given_is_a_fault(query: str) -> None:
    """Go prints `<no value>`, and asks a query that nobody meant."""
    with pytest.raises(BadQueryError, match="an argument that is not given"):
        render_query(query, ARGUMENTS, name="metrics-0")


@pytest.mark.parametrize("query", ["{{ .App.Name", "{{ nope }}", "{{ range }}"])
def test_a_broken_template_is_told_with_its_name(query: str) -> None:
    with pytest.raises(BadQueryError, match="metrics-0"):
        render_query(query, ARGUMENTS, name="metrics-0")
