# SPDX-License-Identifier: Apache-2.0
"""What goes into the one file of a plugin: what it needs, and nothing that others need."""

from pipectl.pluginfile.closure import closure


def names(*requirements: str) -> set[str]:
    return {each.name.lower() for each in closure(requirements)}


def test_a_plugin_brings_the_sdk_and_what_that_needs() -> None:
    found = names("pipecd-sdk")

    assert found >= {"pipecd-sdk", "pipecd-model", "grpcio", "protobuf", "msgspec", "pyyaml"}
    assert not found & {"google-re2", "cryptography", "httpx2", "click"}


def test_an_extra_that_a_plugin_names_is_brought_along() -> None:
    assert names("pipecd-sdk[patterns]") == names("pipecd-sdk") | {"google-re2"}


def test_an_extra_counts_wherever_it_is_named() -> None:
    """The model is found twice, the second time with an extra."""
    assert "google-re2" in names("pipecd-model[regex]", "pipecd-model", "pipecd-sdk")
