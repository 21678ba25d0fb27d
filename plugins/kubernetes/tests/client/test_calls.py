# SPDX-License-Identifier: Apache-2.0
"""Calls: what is sent, and what comes back."""

import pytest
from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    Cluster,
    ConflictError,
    FieldConflict,
    InvalidError,
    NotFoundError,
    PatchType,
)

from pipecd_test_support.scripted_api import Drop, Reply, ScriptedApi, refuse

WEB = "/apis/apps/v1/namespaces/shop/deployments/web"
ALL = "/apis/apps/v1/namespaces/shop/deployments"


def make_web(**metadata: str) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": {"replicas": 2},
    }


async def test_an_apply_is_a_server_side_apply_by_our_manager(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """Git is the truth: the server merges, and knows which fields are ours."""
    api.answer("PATCH", WEB, Reply(body={**make_web(), "status": {}}))
    applied = await cluster.apply(make_web(), force=True, dry_run=True)
    assert applied["status"] == {}
    (sent,) = api.find("PATCH", WEB)
    assert sent.headers["content-type"] == "application/apply-patch+yaml"
    assert sent.query == {"fieldManager": "piped", "force": "true", "dryRun": "All"}
    assert sent.json == make_web()


async def test_an_object_without_a_namespace_goes_where_the_connection_says(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """As kubectl does with the namespace of the context."""
    body = make_web()
    body["metadata"] = {"name": "web"}
    ref = await cluster.ref_of(body)
    assert (ref.namespace, str(ref)) == ("default", "Deployment 'web' in namespace 'default'")
    ref = await cluster.ref_of({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    assert (ref.namespace, str(ref)) == ("", "Namespace 'x'")


async def test_a_conflict_names_the_other_manager_and_the_field(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """Who took a field, and which: otherwise nobody knows whom to ask."""
    api.answer(
        "PATCH",
        WEB,
        refuse(
            409,
            "Conflict",
            "Apply failed with 2 conflicts",
            causes=[
                {
                    "reason": "FieldManagerConflict",
                    "field": ".spec.replicas",
                    "message": 'conflict with "hpa" with subresource "scale" using apps/v1',
                },
                {
                    "reason": "FieldManagerConflict",
                    "field": ".spec.paused",
                    "message": 'conflict with "kubectl\x1b[2J" using apps/v1',
                },
            ],
        ),
    )
    with pytest.raises(ConflictError) as caught:
        await cluster.apply(make_web())
    assert caught.value.conflicts[0] == FieldConflict(manager="hpa", field=".spec.replicas")
    assert str(caught.value) == (
        "cannot apply Deployment 'web' in namespace 'shop': other managers own fields of it: "
        r"'hpa' owns .spec.replicas; 'kubectl\\x1b[2J' owns .spec.paused"
    )
    assert len(api.find("PATCH", WEB)) == 1, "a conflict does not go away by itself"


async def test_an_invalid_manifest_names_its_fields(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(
        "PATCH",
        WEB,
        refuse(
            422,
            "Invalid",
            'Deployment.apps "web" is invalid',
            causes=[
                {"reason": "FieldValueInvalid", "field": "spec.replicas", "message": "must be > 0"}
            ],
        ),
    )
    with pytest.raises(InvalidError) as caught:
        await cluster.apply(make_web())
    assert str(caught.value) == (
        "cannot apply Deployment 'web' in namespace 'shop': it is invalid: "
        "spec.replicas: must be > 0"
    )
    assert caught.value.causes[0].field == "spec.replicas"


async def test_get_returns_none_for_what_is_not_there(api: ScriptedApi, cluster: Cluster) -> None:
    ref = await cluster.ref_of(make_web())
    assert await cluster.get(ref) is None
    api.answer("GET", WEB, Reply(body=make_web()))
    assert await cluster.get(ref) == make_web()


async def test_create_says_that_it_is_there_already(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("POST", ALL, refuse(409, "AlreadyExists", 'deployments "web" already exists'))
    with pytest.raises(AlreadyExistsError, match="already exists"):
        await cluster.create(make_web())


async def test_replace_means_any_version_unless_it_names_one(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """Somebody who writes between our two calls is no reason to fail; one we named is."""
    gone_on = refuse(409, "Conflict", "the object has been modified")
    api.answer(
        "GET",
        WEB,
        Reply(body=make_web(resourceVersion="1")),
        Reply(body=make_web(resourceVersion="2")),
    )
    api.answer("PUT", WEB, gone_on, Reply(body=make_web(resourceVersion="3")))
    replaced = await cluster.replace(make_web())
    assert replaced["metadata"]["resourceVersion"] == "3"
    sent = [each.json["metadata"]["resourceVersion"] for each in api.find("PUT", WEB)]
    assert sent == ["1", "2"]
    api.answer("PUT", WEB, gone_on)
    with pytest.raises(ConflictError, match="has been modified"):
        await cluster.replace(make_web(resourceVersion="2"))
    assert len(api.find("PUT", WEB)) == 3


async def test_replace_says_that_there_is_nothing(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match="cannot replace Deployment 'web'"):
        await cluster.replace(make_web())


async def test_a_patch_has_its_media_type_and_subresource(
    api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("PATCH", f"{WEB}/scale", Reply(body={"kind": "Scale"}))
    ref = await cluster.ref_of(make_web())
    patch = {"spec": {"replicas": 3}}
    await cluster.patch(ref, patch, content_type=PatchType.MERGE, subresource="scale")
    (sent,) = api.find("PATCH", f"{WEB}/scale")
    assert (sent.json, sent.headers["content-type"]) == (patch, "application/merge-patch+json")


async def test_a_deletion_means_one_object_by_its_uid(api: ScriptedApi, cluster: Cluster) -> None:
    """Another object that took the name meanwhile must survive."""
    ref = await cluster.ref_of(make_web())
    api.answer("DELETE", WEB, Reply(body={"kind": "Status", "status": "Success"}))
    assert await cluster.delete(ref, uid="u1", propagation="Foreground", dry_run=True)
    (sent,) = api.find("DELETE", WEB)
    assert sent.json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u1"},
        "dryRun": ["All"],
    }
    for message in (
        "Precondition failed: UID in precondition: u1, UID in object meta: u2",
        "the UID in the precondition (u1) does not match the UID in record (u2)",
    ):
        api.answer("DELETE", WEB, refuse(409, "Conflict", message))
        assert not await cluster.delete(ref, uid="u1")
    api.answer("DELETE", WEB, refuse(404, "NotFound", "not found"))
    assert not await cluster.delete(ref)


async def test_a_deletion_whose_answer_was_lost_still_counts(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """The second attempt finds nothing because the first one worked."""
    ref = await cluster.ref_of(make_web())
    api.answer("DELETE", WEB, Drop(), refuse(404, "NotFound", "not found"))
    assert await cluster.delete(ref, uid="u1")


@pytest.mark.parametrize("name", ["..", "a/b", "a%2fb", "a\nb"])
async def test_a_name_is_never_another_path(name: str, api: ScriptedApi, cluster: Cluster) -> None:
    """A manifest from a repository must not reach another object, or another kind."""
    with pytest.raises(InvalidError, match="not the name of a Deployment"):
        await cluster.apply(make_web(name=name))
    assert not [each for each in api.requests if each.method == "PATCH"]


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ({}, "apiVersion"),
        ({"apiVersion": "v1", "kind": 3}, "kind"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": []}, "metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": 3}}, "no text"),
    ],
)
async def test_a_manifest_of_the_wrong_shape_gives_a_sentence(
    body: dict[str, object], missing: str, cluster: Cluster
) -> None:
    with pytest.raises(InvalidError, match=missing):
        await cluster.apply(body)
