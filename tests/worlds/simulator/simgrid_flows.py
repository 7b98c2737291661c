"""Flows over links as SimGrid has them: run by the system's Python, JSON in and JSON out.

In: {"links": [[latency_s, bytes_per_s], ...], "flows": [[start_s, bytes, [link, ...]], ...]}.
Out: the second in which each flow ends.  Max-min sharing without any of SimGrid's corrections.
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor

PLAIN = ("network/model:CM02", "network/TCP-gamma:0", "network/bandwidth-factor:1.0",
         "network/latency-factor:1.0", "network/weight-S:0", "network/crosstraffic:0",
         "surf/precision:1e-9", "maxmin/precision:1e-9")  # fmt: skip


def main():
    given = json.load(sys.stdin)
    engine = Engine(
        ["flows", "--log=root.thres:critical", *(f"--cfg={option}" for option in PLAIN)]
    )
    zone, ends = NetZone.create_full_zone("cluster"), [None] * len(given["flows"])
    links = [
        zone.create_link(f"link {n}", bytes_per_s).set_latency(latency_s).seal()
        for n, (latency_s, bytes_per_s) in enumerate(given["links"])
    ]
    for n, (start_s, nbytes, route) in enumerate(given["flows"]):
        src, dst = (zone.create_host(f"{end} {n}", 1e9) for end in ("src", "dst"))
        path = [LinkInRoute(links[link]) for link in route]
        zone.add_route(src.netpoint, dst.netpoint, None, None, path, False)
        Actor.create(f"send {n}", src, send, n, start_s, nbytes)
        Actor.create(f"receive {n}", dst, receive, n, ends)
    zone.seal()
    engine.run()
    json.dump(ends, sys.stdout)


def send(n, start_s, nbytes):
    this_actor.sleep_until(start_s)
    Mailbox.by_name(f"box {n}").put("x", nbytes)


def receive(n, ends):
    Mailbox.by_name(f"box {n}").get()
    ends[n] = Engine.clock


if __name__ == "__main__":
    main()
