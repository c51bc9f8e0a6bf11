"""The keys that the monitor offers: in its footer those that act now, in the palette those of its panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.snapshot import Snapshot
from tputui.ui.base import keymap
from tputui.ui.monitor.arrangement import PANELS
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.hosts import HostsPanel
from tputui.ui.monitor.layouts import DEFAULT_NAME
from tputui.ui.monitor.log import LogPanel
from tputui.ui.render.lines import clean

ONE_HOST = "this run has one host"


class FooterState(NamedTuple):
    """What the keys of the footer depend on."""

    is_typing: bool
    has_pictures: bool
    in_past: bool
    is_over: bool
    hidden: frozenset[str]
    """The hidden panels."""
    has_hosts: bool
    has_map: bool
    """Whether the hosts are a map, whose value can be changed."""


def state_of(body: Body, snapshot: Snapshot | None, *, in_past: bool, is_over: bool) -> FooterState:
    """What the keys depend on now. `in_past` and `is_over` are as for `keymap.offered`."""
    return FooterState(
        is_typing=body.get(LogPanel).is_typing,
        has_pictures=snapshot is not None and snapshot.pictures is not None,
        in_past=in_past,
        is_over=is_over,
        hidden=body.layout_now.hidden,
        has_hosts=body.has_hosts,
        has_map=body.has_hosts and body.get(HostsPanel).has_map,
    )


def footer_keys(in_force: Sequence[keymap.Key], state: FooterState, body: Body) -> list[keymap.Key]:
    """The keys that act now, with the numbers of the hidden panels; while a search is typed, its keys."""
    if state.is_typing:
        return list(keymap.TYPING)
    acting = {"pictures": state.has_pictures, keymap.SELECT_HOSTS: state.has_hosts, keymap.NEXT_VALUE: state.has_map}
    known = [key for key in in_force if acting.get(key.action, True)]
    return _with_hidden(keymap.offered(known, in_past=state.in_past, over=state.is_over), body)


def _with_hidden(keys: Sequence[keymap.Key], body: Body) -> list[keymap.Key]:
    """The keys without those of hidden panels, and with the numbers of the hidden panels."""
    hidden = body.hidden()
    ids = tuple(f"app.on_widget({panel.id!r}," for panel in hidden)
    word = f"hidden {' '.join(panel.key for panel in hidden)}" if hidden else ""
    of_layouts = keymap.on_widget("body", "layouts")
    return [
        key._replace(footer=word if key.action == of_layouts else key.footer)
        for key in keys
        if not key.action.startswith(ids)
    ]


def why_no_hosts(key: keymap.Key, body: Body) -> str:
    """Why a key of the hosts does nothing; empty if it is none of them, or if there are several hosts."""
    return ONE_HOST if key.action in (keymap.SELECT_HOSTS, keymap.NEXT_VALUE) and not body.has_hosts else ""


def of_panels(body: Body) -> list[keymap.Key]:
    """Entries of the palette: the keys of log and hosts from any panel, each panel, and each saved layout."""
    of_log = [key._replace(action=f"in_log({key.action!r})") for key in keymap.LOG]
    of_hosts = [key._replace(action=keymap.on_widget("hosts", key.action)) for key in keymap.HOSTS if body.has_hosts]
    panels = [
        keymap.Key(
            "",
            "",
            keymap.on_widget("body", f"hide_or_show({panel.id!r})"),
            "",
            f"{'hide' if body.layout_now.shows(panel.id or '') else 'show'} {panel.name_shown}",
            "panels",
            also="hidden toggle",
        )
        for panel in body.panels()
        if panel.id in PANELS and body.exists(panel.id)
    ]
    layouts = [
        keymap.Key(
            "",
            "",
            keymap.on_widget("body", f"choose_layout({name!r})"),
            "",
            f"layout: {clean(name)}",
            "layouts",
            also="arrangement panels saved",
        )
        for name in (DEFAULT_NAME, *body.saved.names())
    ]
    return [*panels, *layouts, *of_log, *of_hosts]
