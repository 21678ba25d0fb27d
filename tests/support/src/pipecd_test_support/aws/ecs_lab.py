# SPDX-License-Identifier: Apache-2.0
"""One application on ECS: its files, a cluster, a load balancer, and the plugin to run there."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipecd_plugin_ecs.plugin import Ecs

from pipecd_sdk import DeployTarget, StageResult, replace
from pipecd_sdk.testing import FakeClock, StageHarness, deploy_target
from pipecd_sdk.testing.harness import example_deployment
from pipecd_test_support.aws.lab import AwsLab

Object = dict[str, Any]
_numbers = itertools.count(1)


def make_task(image: str = "web:v1", **more: Any) -> Object:
    """A task definition; moto wants `memory`."""
    container = {"name": "web", "image": image, "memory": 128, **more.pop("container", {})}
    return {"family": "web", "containerDefinitions": [container], **more}


class EcsLab:
    """The service `web` in a cluster of its own, behind the listeners of its own load balancer."""

    def __init__(self, aws: AwsLab, folder: Path) -> None:
        self.aws = aws
        self.folder = folder
        self.number = next(_numbers)
        self.cluster = f"cluster-{self.number}"
        aws.ecs.create_cluster(clusterName=self.cluster)
        aws.forget()
        self._balanced: dict[str, str] = {}

    @property
    def target(self) -> DeployTarget:
        return deploy_target(Ecs, "aws", self.aws.target)

    def make_service(self, *, count: int | None = 4, **more: Any) -> Object:
        """A service definition with task sets."""
        given = {
            "serviceName": "web",
            "clusterArn": self.cluster,
            "launchType": "FARGATE",
            "deploymentController": {"type": "EXTERNAL"},
            "desiredCount": count,
            **more,
        }
        return {key: value for key, value in given.items() if value is not None}

    def make_rolling(self, **more: Any) -> Object:
        """A service definition with AWS's own rolling updates."""
        return self.make_service(**{"deploymentController": {"type": "ECS"}, **more})

    def balance(self) -> dict[str, str]:
        """Makes a load balancer with two listeners; returns the ARNs of groups and rules.

        `default` and `own` forward to both groups, `own` with stickiness; `other` and `foreign`
        forward elsewhere.
        """
        elb, ec2 = self.aws.elb, self.aws.ec2
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnets = [
            ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24", AvailabilityZone=zone)[
                "Subnet"
            ]["SubnetId"]
            for n, zone in enumerate(("eu-central-1a", "eu-central-1b"))
        ]
        balancer = elb.create_load_balancer(Name=f"lb-{self.number}", Subnets=subnets)
        groups = {
            name: elb.create_target_group(
                Name=f"{name}-{self.number}", Protocol="HTTP", Port=80, VpcId=vpc
            )["TargetGroups"][0]["TargetGroupArn"]
            for name in ("primary", "canary", "stranger")
        }

        def forward(weights: Mapping[str, int], **more: Any) -> list[Object]:
            pairs = [{"TargetGroupArn": groups[k], "Weight": v} for k, v in weights.items()]
            return [{"Type": "forward", "ForwardConfig": {"TargetGroups": pairs, **more}}]

        both, stranger = {"primary": 100, "canary": 0}, {"stranger": 1}
        made: dict[str, str] = {}
        arn = balancer["LoadBalancers"][0]["LoadBalancerArn"]
        for port, actions in ((80, forward(both)), (8080, forward(stranger))):
            listener = elb.create_listener(
                LoadBalancerArn=arn, Protocol="HTTP", Port=port, DefaultActions=actions
            )["Listeners"][0]["ListenerArn"]
            made[f"listener-{port}"] = listener
        sticky = {"TargetGroupStickinessConfig": {"Enabled": True, "DurationSeconds": 300}}
        for name, actions in (
            ("own", forward(both, **sticky)),
            ("foreign", forward({"primary": 50, "stranger": 50})),
        ):
            made[name] = elb.create_rule(
                ListenerArn=made["listener-8080"],
                Conditions=[{"Field": "path-pattern", "Values": [f"/{name}"]}],
                Priority=len(made),
                Actions=actions,
            )["Rules"][0]["RuleArn"]
        self._balanced = {**groups, **made}
        return self._balanced

    def add_load_balancer(self) -> str:
        """Makes a second load balancer whose listener forwards to both groups; returns its ARN."""
        elb = self.aws.elb
        known = elb.describe_load_balancers(Names=[f"lb-{self.number}"])["LoadBalancers"][0]
        subnets = [each["SubnetId"] for each in known["AvailabilityZones"]]
        made = elb.create_load_balancer(Name=f"second-{self.number}", Subnets=subnets)
        weights = [
            {"TargetGroupArn": self._balanced[name], "Weight": weight}
            for name, weight in (("primary", 100), ("canary", 0))
        ]
        listener = elb.create_listener(
            LoadBalancerArn=made["LoadBalancers"][0]["LoadBalancerArn"],
            Protocol="HTTP",
            Port=80,
            DefaultActions=[{"Type": "forward", "ForwardConfig": {"TargetGroups": weights}}],
        )
        arn: str = listener["Listeners"][0]["ListenerArn"]
        return arn

    def read_default_weights(self, listener: str) -> dict[str, int]:
        """The weights of a listener's own rule."""
        names = {arn: name for name, arn in self._balanced.items()}
        found = self.aws.elb.describe_listeners(ListenerArns=[listener])["Listeners"][0]
        groups = found["DefaultActions"][0]["ForwardConfig"]["TargetGroups"]
        return {names[each["TargetGroupArn"]]: each["Weight"] for each in groups}

    def read_weights(self) -> dict[str, list[tuple[str, int]]]:
        """The weights of all rules, by listener and rule; none without a load balancer."""
        names = {arn: name for name, arn in self._balanced.items()}
        found: dict[str, list[tuple[str, int]]] = {}
        for port in (80, 8080) if names else ():
            listener = self._balanced[f"listener-{port}"]
            for rule in self.aws.elb.describe_rules(ListenerArn=listener)["Rules"]:
                key = names.get(rule["RuleArn"], f"default-{port}")
                found[key] = [
                    (names[each["TargetGroupArn"]], each.get("Weight", 1))
                    for each in rule["Actions"][0]["ForwardConfig"]["TargetGroups"]
                ]
        return found

    def make_options(self, **given: Any) -> Object:
        """The options of the application: service discovery, or the groups of `balance`."""
        chosen: Object = {
            "taskDefinitionFile": "taskdef.json",
            "serviceDefinitionFile": "servicedef.json",
            "accessType": "SERVICE_DISCOVERY",
            "stableTimeout": "2m",
        }
        if self._balanced:
            chosen["accessType"] = "ELB"
            chosen["targetGroups"] = {
                name: {
                    "targetGroupArn": self._balanced[name],
                    "containerName": "web",
                    "containerPort": 80,
                }
                for name in ("primary", "canary")
            }
        return {"input": {**chosen, **given}}

    def write(self, commit: str, task: Object, service: Object | None = None) -> Path:
        """Writes the files of a commit; returns their folder."""
        folder = self.folder / commit
        folder.mkdir(exist_ok=True)
        (folder / "taskdef.json").write_text(json.dumps(task))
        if service is not None:
            (folder / "servicedef.json").write_text(json.dumps(service))
        return folder

    def open(
        self,
        deployment: str,
        target: Path,
        running: Path | None = None,
        options: Object | None = None,
    ) -> StageHarness[Ecs]:
        """A deployment from one folder of files to another; commits are named as their folders."""
        made = example_deployment()
        made = replace(
            made,
            id=f"{deployment}-{self.number}",
            commit=replace(made.commit, hash=target.name),
            running_commit=running.name if running else "",
        )
        plugin = Ecs()
        plugin.accounts = self.aws.accounts
        return StageHarness(
            plugin,
            clock=FakeClock(),
            deployment=made,
            directory=target,
            running_directory=running,
            options=self.make_options() if options is None else options,
            targets=[self.target],
        )

    async def deploy_first(self, service: Object | None = None, **task: Any) -> Path:
        """Deploys a first commit, v1; returns its folder."""
        folder = self.write("v1", make_task(**task), service or self.make_service())
        harness = self.open("first", folder)
        result = await harness.run("ECS_SYNC")
        assert result.reason == "", result
        return folder

    def read_service(self, name: str = "web") -> Object:
        """The service as AWS has it."""
        found: Object = self.aws.ecs.describe_services(
            cluster=self.cluster, services=[name], include=["TAGS"]
        )["services"][0]
        return found

    def read_sets(self, name: str = "web", client: Any = None) -> list[Object]:
        """The task sets: status, image, share, commit; `client` may be of another region."""
        client = client or self.aws.ecs
        sets = client.describe_task_sets(cluster=self.cluster, service=name, include=["TAGS"])[
            "taskSets"
        ]
        return sorted(
            (
                {
                    "status": each["status"],
                    "image": self.read_image(each["taskDefinition"], client),
                    "scale": each["scale"]["value"],
                    "commit": {t["key"]: t["value"] for t in each["tags"]}.get(
                        "pipecd-dev-commit-hash"
                    ),
                }
                for each in sets
            ),
            key=lambda each: str(each["status"]),
        )

    def read_all(self) -> Object:
        """What a rollback must bring back."""
        service = self.read_service()
        return {
            "sets": self.read_sets(),
            "desired": service["desiredCount"],
            "running": service["runningCount"],
            "weights": self.read_weights(),
            "tags": {t["key"]: t["value"] for t in service["tags"]},
        }

    def read_image(self, task_definition: str, client: Any = None) -> str:
        client = client or self.aws.ecs
        found = client.describe_task_definition(taskDefinition=task_definition)
        image: str = found["taskDefinition"]["containerDefinitions"][0]["image"]
        return image


def assert_success(result: StageResult) -> None:
    """Fails with the reason of a stage that has failed."""
    assert result.reason == "", result.reason
    assert result.status.name == "SUCCESS"
