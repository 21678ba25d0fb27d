# SPDX-License-Identifier: Apache-2.0
"""Any older file without anchors can be migrated, however it is laid out, and says the same."""

from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.config import load_application
from pipecd_model.migrate import migrate_application

NAMES = st.text(alphabet="abcx-", min_size=1, max_size=8)
TEXTS = st.one_of(NAMES, st.text(alphabet="ab:#{}[]'\" \n\\%-", max_size=12))
VALUES = st.recursive(
    st.one_of(TEXTS, st.booleans(), st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
SECTIONS = st.dictionaries(NAMES, VALUES, max_size=3)
TIMES = st.sampled_from(["30m", "1h", "5s"])
STAGES = st.fixed_dictionaries(
    {"name": st.sampled_from(["K8S_SYNC", "WAIT", "ANALYSIS", "SCRIPT_RUN", "ECS_CANARY_ROLLOUT"])},
    optional={
        "with": st.fixed_dictionaries(
            {},
            optional={
                "timeout": TIMES,
                "skipOn": st.just({"paths": ["docs/**"]}),
                "scale": st.just("30%"),
                "run": TEXTS,
            },
        ),
        "timeout": TIMES,
        "desc": TEXTS,
    },
)
INPUTS = st.builds(
    lambda settings, switch: settings | ({} if switch is None else {"autoRollback": switch}),
    SECTIONS,
    st.sampled_from([True, False, None]),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES,
        "input": INPUTS,
        "quickSync": SECTIONS,
        "service": SECTIONS,
        "description": TEXTS,
        "planner": st.just({"alwaysUsePipeline": True}),
        "pipeline": st.fixed_dictionaries({"stages": st.lists(STAGES, max_size=4)}),
        "labels": st.dictionaries(NAMES, NAMES, max_size=2),
        "plugins": st.dictionaries(st.sampled_from(["wait", "mine"]), SECTIONS, max_size=2),
    },
)
KINDS = st.sampled_from(["KubernetesApp", "TerraformApp", "ECSApp", "LambdaApp", "CloudRunApp"])


class _WithoutAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@given(
    KINDS,
    SPECS,
    st.sampled_from([True, False, None]),
    st.integers(min_value=2, max_value=5),
    st.randoms(use_true_random=False),
)
def test_it_says_the_same(
    kind: str, spec: dict[str, Any], flow: bool | None, indent: int, order: Any
) -> None:
    items = list(spec.items())
    order.shuffle(items)
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": kind, "spec": dict(items)}
    text = yaml.dump(
        document, Dumper=_WithoutAliases, default_flow_style=flow, indent=indent, sort_keys=False
    )

    migrated = migrate_application(text, file="app.pipecd.yaml").text

    before = load_application(text, file="f").config
    after = load_application(migrated, file="f").config
    assert after == msgspec.structs.replace(before, kind="Application")
