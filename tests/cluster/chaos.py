"""What goes wrong during the cluster test: a list of faults that follows from a seed, and how each is done."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from typing import Literal, NamedTuple

from .testbed import Testbed, until

Kind = Literal[
    "kill worker", "end worker", "cut gateway", "reset gateway", "cut worker", "isolate node", "restart node"
]


class Fault(NamedTuple):
    """``target`` is the index of a worker, gateway or node; ``seconds`` how long a cut lasts or a process is away."""

    kind: Kind
    target: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind} {self.target} for {self.seconds:.1f} s"


def faults(seed: int, bed: Testbed) -> list[Fault]:
    """Every kind of fault, more than once, in an order of the seed's; every node of NATS is restarted."""
    chance = random.Random(seed)
    workers, gateways, nodes = len(bed.workers), len(bed.gateways), len(bed.nodes)
    made = [Fault("kill worker", chance.randrange(workers), chance.uniform(0.0, 2.0)) for _ in range(5)]
    made += [Fault("end worker", chance.randrange(workers), chance.uniform(0.0, 2.0)) for _ in range(3)]
    made += [Fault("cut gateway", chance.randrange(gateways), chance.uniform(0.5, 4.0)) for _ in range(3)]
    made += [Fault("reset gateway", chance.randrange(gateways), 0.0) for _ in range(2)]
    made += [Fault("cut worker", chance.randrange(workers), seconds) for seconds in (1.0, 8.0)]
    made += [Fault("isolate node", chance.randrange(nodes), chance.uniform(1.0, 5.0)) for _ in range(3)]
    made += [Fault("restart node", node, chance.uniform(0.0, 2.0)) for node in range(nodes)]
    chance.shuffle(made)
    return made


async def inflict(bed: Testbed, made: list[Fault], share: Callable[[], float], say: Callable[[str], None]) -> None:
    """Do one fault after another, spread over the load: ``share`` of it, from 0 to 1, has been done."""
    for index, fault in enumerate(made, 1):
        await until(lambda index=index: share() >= index / (len(made) + 2), 300.0, "the next fault's turn")
        say(f"{share():4.0%} {fault}")
        await _do(bed, fault)


async def _do(bed: Testbed, fault: Fault) -> None:
    match fault.kind:
        case "kill worker" | "end worker":
            worker = bed.workers[fault.target]
            worker.send(signal.SIGKILL if fault.kind == "kill worker" else signal.SIGTERM)
            await worker.ended()
            await asyncio.sleep(fault.seconds)
            worker.start()
        case "cut gateway" | "cut worker":
            links = bed.ways_in(f"{fault.kind.split()[1]}-{fault.target}")
            bed.network.cut(links)
            await asyncio.sleep(fault.seconds)
            bed.network.heal(links)
        case "reset gateway":
            bed.network.reset(bed.ways_in(f"gateway-{fault.target}"))
        case "isolate node":
            bed.network.cut(bed.routes(fault.target))
            await asyncio.sleep(fault.seconds)
            bed.network.heal(bed.routes(fault.target))
            await bed.nodes_are_well()
        case "restart node":
            node = bed.nodes[fault.target]
            node.send(signal.SIGKILL if fault.target == 0 else signal.SIGTERM)
            await node.ended()
            await asyncio.sleep(fault.seconds)
            node.start()
            await bed.nodes_are_well()
