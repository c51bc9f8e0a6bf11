"""One of two hosts that only watch each other: prints `listening`, reads a line and prints `linked`, and then what it
finds out about the other one."""

from __future__ import annotations

import socket
import sys
import time

from engine.parallel.host_links import Address, HostLinks, connect_all

PORT = 20_431
TOKEN = "token"


def main() -> None:
    """Arguments: index of this host, the addresses of both, and the timeout of their connection in seconds."""
    index, hosts, timeout_s = int(sys.argv[1]), sys.argv[2:4], float(sys.argv[4])
    with socket.create_server((hosts[index], PORT + index)) as listener:
        say("listening")
        sys.stdin.readline()
        addresses = [Address(host, PORT + number, TOKEN) for number, host in enumerate(hosts)]
        sockets = connect_all(index, listener, TOKEN, addresses, time.monotonic() + 60)
    links = HostLinks(index, sockets, hosts, timeout_s)
    say("linked")
    began = time.monotonic()
    while (lost := links.lost()) is None:
        time.sleep(0.05)
    say(f"{time.monotonic() - began:.1f} {lost.sentence}")


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
