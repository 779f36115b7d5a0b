"""A sandbox of NeMo Gym that is Droste's: `python nemo_gym_sandbox.py`. Needs no key."""
import asyncio

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec, list_providers, register_provider

from droste.integrations.nemo_gym import DrosteProvider

SPEC = SandboxSpec(workdir="/work", files={"/work/orders.txt": "100\n101\n102\n"},
                   resources={"memory_mib": 1024}, ttl_s=600)


async def main():
    async with AsyncSandbox({"droste": {}}, SPEC) as box:
        await box.start()
        done = await box.exec("awk '{ sum += $1 } END { print sum }' orders.txt", timeout_s=30)
        print("the total is", done.stdout.strip())


if __name__ == "__main__":
    if "droste" not in list_providers():    # the package droste registers it where it is installed
        register_provider("droste", DrosteProvider)
    asyncio.run(main())
