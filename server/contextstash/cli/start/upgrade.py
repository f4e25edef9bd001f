"""`contextstash upgrade`: how this installation is brought up to date."""

from __future__ import annotations

import click

from contextstash import __version__


@click.command()
def upgrade() -> None:
    """Say how to upgrade this installation. Nothing is downloaded or changed."""
    from contextstash.hosts.install.own_upgrade import this_installation

    installation = this_installation()
    click.echo(f"contextstash {__version__} is {installation.described}")
    commands = installation.upgrade
    if not commands:
        click.echo("Install the new version as you installed this one. The name on the package index is not ours yet.")
        return
    click.echo("To upgrade it:")
    for command in commands:
        click.echo(f"  {command}")
    click.echo("Databases are migrated at the next use. Clients start the new version when they are restarted.")
