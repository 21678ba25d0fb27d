# SPDX-License-Identifier: Apache-2.0
"""`pipectl user-group …`: which role a group of the sign-in provider has in the project."""

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.connection import require_session
from pipecd_pipectl.output import echo, output_option, print_data, wants_data
from pipecd_pipectl.tables import print_rows
from pipecd_wire.rpc import call
from pipecd_wire.webservice import service_pb2 as web

WHAT = "user groups are managed by people"


@click.group("user-group")
def user_group() -> None:
    """User groups: the roles of people from single sign-on."""


@user_group.command("list")
@output_option
@use_client
async def list_user_groups(client: Client, *, output: str) -> None:
    """List the groups that have a role in the project."""
    require_session(client.connection, WHAT)
    project = (await call(client.web.GetProject, web.GetProjectRequest())).project
    if wants_data(output):
        listed = [{"group": each.sso_group, "role": each.role} for each in project.user_groups]
        print_data({"userGroups": listed}, output)
        return
    print_rows(["GROUP", "ROLE"], [[each.sso_group, each.role] for each in project.user_groups])


@user_group.command()
@click.argument("group")
@click.option("--role", required=True, help="Admin, Editor, Viewer, or a role of the project.")
@use_client
async def add(client: Client, *, group: str, role: str) -> None:
    """Give a group a role. Its people have it from their next call on."""
    require_session(client.connection, WHAT)
    request = web.AddProjectUserGroupRequest(sso_group=group, role=role)
    await call(client.web.AddProjectUserGroup, request)
    echo(f"the group {group} has the role {role}")


@user_group.command()
@click.argument("group")
@use_client
async def delete(client: Client, *, group: str) -> None:
    """Take the role of a group away."""
    require_session(client.connection, WHAT)
    request = web.DeleteProjectUserGroupRequest(sso_group=group)
    await call(client.web.DeleteProjectUserGroup, request)
    echo(f"the group {group} has no role any more")
