# SPDX-License-Identifier: Apache-2.0
"""The calls to ECS for one service: what is there, and what changes it. Every change is repeatable.

A task set is found again by its external id, which names deployment and variant, so that a stage
that runs a second time makes no second one, also when the answer to the first call was lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipecd_aws import AwsAccount, AwsError, UnfitValueError, fit, make_token
from pipecd_plugin_ecs.provider.model import (
    DRAINING,
    Service,
    TaskSet,
    read_service,
    read_tags,
    read_task_set,
    write_tags,
)
from pipecd_sdk import StageFailedError

TASK_SET_FIELDS: Final = frozenset(
    {
        "capacityProviderStrategy",
        "launchType",
        "loadBalancers",
        "networkConfiguration",
        "platformVersion",
        "serviceRegistries",
    }
)
"""Fields of a service definition that belong to its task sets, with the EXTERNAL controller."""
EXTERNAL_UPDATES: Final = frozenset(
    {
        "desiredCount",
        "enableECSManagedTags",
        "enableExecuteCommand",
        "healthCheckGracePeriodSeconds",
        "placementConstraints",
        "placementStrategy",
        "propagateTags",
    }
)
"""What AWS lets change of a service with the EXTERNAL controller."""
CLEARABLE: Final = (
    "loadBalancers",
    "placementConstraints",
    "placementStrategy",
    "serviceRegistries",
)
"""Lists of a service that AWS leaves as they are unless it is given others, or an empty one."""
NOT_UPDATED: Final = frozenset({"cluster", "service", "desiredcount", "deploymentcontroller"})
"""Fields of a service definition, in small letters, that no update takes from it."""
NOT_KEPT: Final = "forcenewdeployment"
"""What an update takes and a service does not have: a deed, no field. In small letters."""
IN_DEPLOYMENTS: Final = frozenset(
    {"serviceConnectConfiguration", "volumeConfigurations", "vpcLatticeConfigurations"}
)
"""Fields of a service definition that AWS tells of the deployments of a service."""
NOT_FOUND: Final = frozenset({"ServiceNotFoundException", "TaskSetNotFoundException"})
NO_REVISION: Final = "ClientException"
"""What AWS says of a revision that was deleted."""
MOST_SERVICES_AT_ONCE: Final = 10
MOST_TASKS_AT_ONCE: Final = 100
MOST_TASKS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EcsClient:
    """One cluster of one account."""

    account: AwsAccount
    cluster: str

    async def fit(
        self, operation: str, value: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """Returns a definition in the shape of an operation, and its unknown fields."""
        shape = await self.account.read_input_shape("ecs", operation)
        try:
            return fit(value, shape)
        except UnfitValueError as error:
            raise StageFailedError(
                f"the definition does not fit: {error}", hint="correct the file of the repository"
            ) from None

    async def find_service(self, name: str) -> Service | None:
        """Returns a service, None when there is none, or only one that was deleted."""
        return (await self.describe_services([name])).get(name)

    async def describe_services(self, names: Sequence[str]) -> dict[str, Service]:
        """Returns those services that there are, up to ten, by the names that they are asked by."""
        answer = await self._call(
            "DescribeServices", {"services": list(names), "include": ["TAGS"]}
        )
        found = [read_service(each) for each in answer.get("services") or ()]
        return {
            name: each
            for name in names
            for each in found
            if each.status != "INACTIVE" and name in {each.name, each.arn}
        }

    async def register_task(self, definition: Mapping[str, Any]) -> str:
        """Registers a task definition; returns the ARN of the revision."""
        answer = await self.account.call("ecs", "RegisterTaskDefinition", definition)
        return str(answer["taskDefinition"]["taskDefinitionArn"])

    async def describe_task_definition(self, arn: str) -> Mapping[str, Any]:
        """Returns a registered task definition."""
        answer = await self.account.call("ecs", "DescribeTaskDefinition", {"taskDefinition": arn})
        found: Mapping[str, Any] = answer["taskDefinition"]
        return found

    async def find_task_definition(self, arn: str) -> Mapping[str, Any] | None:
        """Returns a registered task definition, None for one that was deleted."""
        try:
            return await self.describe_task_definition(arn)
        except AwsError as error:
            if error.code != NO_REVISION:
                raise
            return None

    async def create_service(self, definition: Mapping[str, Any], *, token: str) -> Service:
        """Makes a service; the same token makes none twice."""
        answer = await self._call(
            "CreateService", {**definition, "clientToken": make_token("service", token)}
        )
        return read_service(answer["service"])

    async def update_service(self, name: str, changes: Mapping[str, Any]) -> Service:
        """Changes a service."""
        answer = await self._call(
            "UpdateService",
            {"service": name, **changes},
            settling=["ServiceNotFoundException", "ServiceNotActiveException"],
        )
        return read_service(answer["service"])

    async def set_tags(self, arn: str, wanted: Mapping[str, str]) -> None:
        """Gives a resource exactly these tags, but for those of AWS itself."""
        answer = await self.account.call("ecs", "ListTagsForResource", {"resourceArn": arn})
        there = read_tags(answer.get("tags"))
        gone = [key for key in there if key not in wanted]
        if gone:
            await self.account.call("ecs", "UntagResource", {"resourceArn": arn, "tagKeys": gone})
        if any(there.get(key) != value for key, value in wanted.items()):
            await self.account.call(
                "ecs", "TagResource", {"resourceArn": arn, "tags": write_tags(wanted)}
            )

    async def list_task_sets(self, service: str) -> list[TaskSet]:
        """Returns the task sets of a service that are not on their way out."""
        answer = await self._call(
            "DescribeTaskSets",
            {"service": service, "include": ["TAGS"]},
            settling=["ServiceNotFoundException"],
        )
        found = [read_task_set(each) for each in answer.get("taskSets") or ()]
        return [each for each in found if each.status != DRAINING]

    async def create_task_set(
        self, service: str, fields: Mapping[str, Any], *, token: str
    ) -> TaskSet:
        """Makes a task set, or returns the one that has its external id already.

        AWS gives its first answer again for the same token, also when the task set is gone by then.
        """
        external_id = str(fields["externalId"])
        if (found := await self.find_task_set(service, external_id)) is not None:
            return found
        parameters = {
            "service": service,
            "clientToken": make_token("task set", external_id, token),
            **fields,
        }
        try:
            answer = await self._call(
                "CreateTaskSet",
                parameters,
                settling=["ServiceNotFoundException", "ServiceNotActiveException"],
            )
        except AwsError as error:
            # Lost on the way back? Then it is there, under its external id.
            found = (
                await self.find_task_set(service, external_id) if error.is_outcome_unknown else None
            )
            if found is None:
                raise
            return found
        return read_task_set(answer["taskSet"])

    async def find_task_set(self, service: str, external_id: str) -> TaskSet | None:
        """Returns the task set with an external id, None without one."""
        found = await self.list_task_sets(service)
        return next((each for each in found if each.external_id == external_id), None)

    async def promote(self, service: str, task_set: TaskSet) -> None:
        """Makes a task set the primary one."""
        await self._call(
            "UpdateServicePrimaryTaskSet",
            {"service": service, "primaryTaskSet": task_set.arn},
            settling=["TaskSetNotFoundException"],
        )

    async def set_scale(self, service: str, task_set: TaskSet, percent: float) -> None:
        """Changes the share of the service's tasks that a task set has."""
        await self._call(
            "UpdateTaskSet",
            {
                "service": service,
                "taskSet": task_set.arn,
                "scale": {"value": percent, "unit": "PERCENT"},
            },
        )

    async def delete_task_set(self, service: str, task_set: str) -> bool:
        """Deletes a task set with all its tasks; returns whether it was there."""
        try:
            await self._call(
                "DeleteTaskSet", {"service": service, "taskSet": task_set, "force": True}
            )
        except AwsError as error:
            if error.code not in NOT_FOUND:
                raise
            return False
        return True

    async def run_task(self, parameters: Mapping[str, Any], *, token: str) -> Sequence[str]:
        """Runs a task; the same token runs none twice. Returns the ARNs of its tasks."""
        answer = await self._call(
            "RunTask", {**parameters, "clientToken": make_token("task", token)}
        )
        if failures := answer.get("failures") or ():
            told = "; ".join(
                str(each.get("reason") or each.get("detail") or "unknown") for each in failures
            )
            raise StageFailedError(f"the task could not be placed: {told}")
        return [str(each["taskArn"]) for each in answer.get("tasks") or ()]

    async def list_tasks(
        self, *, service: str = "", family: str = "", stopped: bool = False
    ) -> list[Mapping[str, Any]]:
        """Returns the tasks of a service or family, those that run or those that ended lately."""
        asked: dict[str, Any] = {"cluster": self.cluster}
        asked |= {"serviceName": service} if service else {"family": family}
        if stopped:
            asked["desiredStatus"] = "STOPPED"
        arns: list[str] = []
        async for arn in self.account.list_all("ecs", "ListTasks", asked, items="taskArns"):
            arns.append(arn)
            if len(arns) >= MOST_TASKS:
                break
        tasks: list[Mapping[str, Any]] = []
        for start in range(0, len(arns), MOST_TASKS_AT_ONCE):
            part = arns[start : start + MOST_TASKS_AT_ONCE]
            answer = await self._call("DescribeTasks", {"tasks": part, "include": ["TAGS"]})
            tasks += answer.get("tasks") or ()
        return tasks

    async def _call(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        *,
        settling: Sequence[str] = (),
    ) -> Mapping[str, Any]:
        cluster = {"cluster": self.cluster} if self.cluster else {}
        return await self.account.call(
            "ecs",
            operation,
            {**cluster, **parameters},
            settling=settling,
        )
