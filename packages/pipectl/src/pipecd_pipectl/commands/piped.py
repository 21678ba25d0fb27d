# SPDX-License-Identifier: Apache-2.0
"""`pipectl piped …`: agents of the project."""

import base64

import click

from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.completions import complete_plugins
from pipecd_pipectl.lookup import find_piped
from pipecd_pipectl.options import check_one_given, dry_run_option, piped_argument, say_dry_run
from pipecd_pipectl.output import echo, is_wide, list_option, output_option, print_data, wants_data
from pipecd_pipectl.pipedview import name_pipeds, print_piped, print_pipeds
from pipecd_pipectl.selection import select_piped
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call


@click.group()
def piped() -> None:
    """Agents: register them, list them, turn them on and off.

    Commands take a piped by its name, its id, or the start of its id.
    """


@piped.command()
@click.argument("name", metavar="[NAME]", default="")
@click.option("--name", "by_flag", default="", help="The same: what people call it.")
@click.option("--desc", default="", help="What it is for.")
@dry_run_option
@output_option
@use_client
async def register(
    client: Client, *, name: str, by_flag: str, desc: str, dry_run: bool, output: str
) -> None:
    """Register a new piped and print its id and key. The key is shown only once."""
    if bool(name) == bool(by_flag):
        raise click.UsageError("give the piped's name, once: NAME or --name")
    if dry_run:
        say_dry_run(f"register a piped with the name {name or by_flag!r}")
        return
    made = await call(
        client.api.RegisterPiped,
        pb.RegisterPipedRequest(name=name or by_flag, desc=desc),
        metadata=idempotency_key(),
    )
    encoded = base64.b64encode(made.key.encode()).decode()
    if wants_data(output):
        print_data({"id": made.id, "key": made.key, "base64_key": encoded}, output)
        return
    echo("Put this into the piped's configuration; the key is not shown again:\n")
    echo(f"  pipedID: {made.id}\n  pipedKeyData: {encoded}")


@piped.command("list")
@list_option
@use_client
async def list_pipeds(client: Client, *, output: str) -> None:
    """List the project's pipeds with their plugins."""
    answer = await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in name_pipeds(answer.pipeds):
            echo(each)
    elif answer.pipeds:
        print_pipeds(answer.pipeds, wide=is_wide(output))
    else:
        echo("no piped; register one: pipectl piped register NAME", err=True)


@piped.command()
@piped_argument
@list_option
@use_client
async def get(client: Client, *, name: str, piped_id: str, output: str) -> None:
    """Show one piped with its plugins and repositories."""
    check_one_given("piped", name=name, piped_id=piped_id)
    found = await find_piped(client, name or piped_id)
    if wants_data(output):
        print_data(found, output)
    elif output == "name":
        echo(found.piped.name)
    else:
        print_piped(found, wide=is_wide(output))


@piped.command()
@piped_argument
@dry_run_option
@use_client
async def enable(client: Client, *, name: str, piped_id: str, dry_run: bool) -> None:
    """Let a piped connect again."""
    chosen = await select_piped(client, name, piped_id)
    if dry_run:
        found = (await find_piped(client, chosen.id)).piped
        say_dry_run(f"enable the piped {found.name} ({found.id})")
        return
    request = pb.EnablePipedRequest(piped_id=chosen.id)
    await call(client.api.EnablePiped, request, metadata=idempotency_key())
    echo(f"enabled piped {chosen.label}")


@piped.command()
@piped_argument
@dry_run_option
@use_client
async def disable(client: Client, *, name: str, piped_id: str, dry_run: bool) -> None:
    """Refuse a piped's calls from now on."""
    chosen = await select_piped(client, name, piped_id)
    if dry_run:
        found = (await find_piped(client, chosen.id)).piped
        say_dry_run(f"disable the piped {found.name} ({found.id}): it could do nothing any more")
        return
    request = pb.DisablePipedRequest(piped_id=chosen.id)
    await call(client.api.DisablePiped, request, metadata=idempotency_key())
    echo(f"disabled piped {chosen.label}")


@piped.command()
@piped_argument
@dry_run_option
@use_client
async def delete(client: Client, *, name: str, piped_id: str, dry_run: bool) -> None:
    """Forget a stopped piped that has no applications.

    Its keys count no more; what it has deployed keeps running.
    """
    chosen = await select_piped(client, name, piped_id)
    if dry_run:
        found = (await find_piped(client, chosen.id)).piped
        say_dry_run(f"delete the piped {found.name} ({found.id}): its keys would count no more")
        return
    request = api_pb2.DeletePipedRequest(piped_id=chosen.id)
    await call(client.pipeds.DeletePiped, request, metadata=idempotency_key())
    echo(f"deleted piped {chosen.label}")


@piped.command()
@piped_argument
@click.option("--new-name", default="", help="What people call it from now on.")
@click.option("--desc", default=None, help="What it is for.")
@dry_run_option
@use_client
async def update(
    client: Client, *, name: str, piped_id: str, new_name: str, desc: str | None, dry_run: bool
) -> None:
    """Change the name or the description of a piped."""
    check_one_given("piped", name=name, piped_id=piped_id)
    if not new_name and desc is None:
        raise click.UsageError("nothing to change: give --new-name or --desc")
    found = (await find_piped(client, name or piped_id)).piped
    request = pb.UpdatePipedRequest(
        piped_id=found.id,
        name=new_name or found.name,
        desc=found.desc if desc is None else desc,
    )
    what = f"the piped {found.name}: name {request.name!r}, description {request.desc!r}"
    if dry_run:
        say_dry_run(f"change {what}")
        return
    await call(client.api.UpdatePiped, request, metadata=idempotency_key())
    echo(f"changed {what}")


@piped.command("restart-plugin")
@piped_argument
@click.option(
    "--plugin",
    required=True,
    help="Its name in the piped's configuration.",
    shell_complete=complete_plugins,
)
@dry_run_option
@output_option
@use_client
async def restart_plugin(
    client: Client, *, name: str, piped_id: str, plugin: str, dry_run: bool, output: str
) -> None:
    """Stop and start one plugin of a piped. Running stages are continued."""
    chosen = await select_piped(client, name, piped_id)
    if dry_run:
        found = (await find_piped(client, chosen.id)).piped
        say_dry_run(f"restart the plugin {plugin} of the piped {found.name}")
        return
    request = api_pb2.RestartPluginRequest(piped_id=chosen.id, plugin_name=plugin)
    answer = await call(client.pipeds.RestartPlugin, request, metadata=idempotency_key())
    if wants_data(output):
        print_data(answer, output)
    else:
        echo(f"the plugin {plugin} will be restarted; see `pipectl piped list`")
