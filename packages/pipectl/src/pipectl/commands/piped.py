# SPDX-License-Identifier: Apache-2.0
"""`pipectl piped …`: agents of the project."""

import base64

import click

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import piped_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.rpc import call
from pipectl.client import Client, idempotency_key, use_client
from pipectl.output import echo, output_option, print_json, print_table, wants_json, when


@click.group()
def piped() -> None:
    """Agents: register them, list them, turn them on and off."""


@piped.command()
@click.option("--name", required=True, help="What people call it.")
@click.option("--desc", default="", help="What it is for.")
@output_option
@use_client
async def register(client: Client, *, name: str, desc: str, output: str) -> None:
    """Register a new piped and print its id and key. The key is shown only once."""
    made = await call(
        client.api.RegisterPiped,
        pb.RegisterPipedRequest(name=name, desc=desc),
        metadata=idempotency_key(),
    )
    encoded = base64.b64encode(made.key.encode()).decode()
    if wants_json(output):
        print_json({"id": made.id, "key": made.key, "base64_key": encoded})
        return
    echo("Put this into the piped's configuration; the key is not shown again:\n")
    echo(f"  pipedID: {made.id}\n  pipedKeyData: {encoded}")


@piped.command("list")
@output_option
@use_client
async def list_pipeds(client: Client, *, output: str) -> None:
    """List the project's pipeds with their plugins."""
    answer = await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())
    if wants_json(output):
        print_json(answer)
        return
    print_table(
        ["ID", "NAME", "VERSION", "CONNECTION", "STARTED", "PLUGINS"],
        [
            [
                item.piped.id,
                item.piped.name + (" (disabled)" if item.piped.disabled else ""),
                item.piped.version,
                piped_pb2.Piped.ConnectionStatus.Name(item.piped.status),
                when(item.piped.started_at),
                ", ".join(_plugins(item)),
            ]
            for item in answer.pipeds
        ],
    )


def _plugins(item: api_pb2.ListPipedsResponse.Item) -> list[str]:
    """What it deploys with: an agent of another make says only which plugins it has.

    One of the older generation has platform providers instead.
    """
    told = {plugin.name for plugin in item.plugins}
    return [
        *(_plugin(plugin) for plugin in item.plugins),
        *(plugin.name for plugin in item.piped.plugins if plugin.name not in told),
        *(each.name for each in item.piped.platform_providers),
    ]


def _plugin(plugin: push_pb2.PluginState) -> str:
    state = push_pb2.PluginState.State.Name(plugin.state).lower()
    return plugin.name if state == "ready" else f"{plugin.name} ({state}: {plugin.reason})"


@piped.command()
@click.option("--piped-id", required=True)
@use_client
async def enable(client: Client, *, piped_id: str) -> None:
    """Let a piped connect again."""
    await call(
        client.api.EnablePiped, pb.EnablePipedRequest(piped_id=piped_id), metadata=idempotency_key()
    )
    echo(f"enabled piped {piped_id}")


@piped.command()
@click.option("--piped-id", required=True)
@use_client
async def disable(client: Client, *, piped_id: str) -> None:
    """Refuse a piped's calls from now on."""
    await call(
        client.api.DisablePiped,
        pb.DisablePipedRequest(piped_id=piped_id),
        metadata=idempotency_key(),
    )
    echo(f"disabled piped {piped_id}")


@piped.command("restart-plugin")
@click.option("--piped-id", required=True)
@click.option("--plugin", required=True, help="Its name in the piped's configuration.")
@output_option
@use_client
async def restart_plugin(client: Client, *, piped_id: str, plugin: str, output: str) -> None:
    """Stop and start one plugin of a piped. Running stages are continued."""
    request = api_pb2.RestartPluginRequest(piped_id=piped_id, plugin_name=plugin)
    answer = await call(client.pipeds.RestartPlugin, request, metadata=idempotency_key())
    if wants_json(output):
        print_json(answer)
    else:
        echo(f"the plugin {plugin} will be restarted; see `pipectl piped list`")
