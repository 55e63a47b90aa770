#!/usr/bin/env python3
"""Three scopes at once in an asyncio loop, which goes on with its own work meanwhile."""
import asyncio
import sys

import orch


async def one(context: orch.Context, seconds: float) -> orch.Death:
    with orch.Scope(context, label=f"sleeps {seconds} s") as scope:
        program = scope.spawn(["/bin/sh", "-c", f"setsid sleep 1000 & sleep {seconds}; exit 5"])
        async for event in program.events():
            print(f"{seconds}: {event.name}")
        print(f"{seconds}: exited with", await program.wait())
        return await scope.stop(grace_ms=100)


async def tick() -> None:
    for number in range(1000):
        print("tick", number)
        await asyncio.sleep(0.2)


async def main() -> int:
    async with orch.Context.attach() as context:
        ticking = asyncio.ensure_future(tick())
        deaths = await asyncio.gather(*(one(context, seconds) for seconds in (0.2, 0.4, 0.6)))
        ticking.cancel()
    for death in deaths:
        print(death)
    return 0 if all(death.verdict == orch.Verdict.DEAD for death in deaths) else 1


sys.exit(asyncio.run(main()))
