"""Load an OpenAI-style embeddings endpoint: closed loop, fixed texts, fixed concurrency.

Copied unchanged from the project's shared tools, so that every server is measured by the same program.

usage: embed_load.py URL MODEL [--conc 1,8,32] [--requests 60] [--batch 16] [--seconds-cap 60]
Prints texts/s and p50/p95 latency for each concurrency. Texts are the same for every server (seeded).
"""
import argparse, asyncio, json, random, statistics, time
import aiohttp

WORDS = ("search engine vector model city paris report office invoice river contract weather quarter revenue "
         "patient protein galaxy kernel thread latency gateway queue battery lithium senate budget turbine "
         "harvest glacier museum violin recipe garlic onion bishop castle rocket orbit plasma").split()

def texts(n, seed=0, lo=4, hi=120):
    r = random.Random(seed)
    return [" ".join(r.choice(WORDS) for _ in range(r.randint(lo, hi))) for _ in range(n)]

async def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("url"); ap.add_argument("model")
    ap.add_argument("--conc", default="1,8,32"); ap.add_argument("--requests", type=int, default=60)
    ap.add_argument("--batch", type=int, default=16); ap.add_argument("--key", default="x")
    a = ap.parse_args()
    bodies = [json.dumps({"model": a.model, "input": texts(a.batch, i), "encoding_format": "float"}).encode() for i in range(a.requests)]
    hdr = {"content-type": "application/json", "authorization": f"Bearer {a.key}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as s:
        async def post(b):
            t = time.perf_counter()
            async with s.post(a.url, data=b, headers=hdr) as r:
                d = await r.read()
                assert r.status == 200, (r.status, d[:300])
                return time.perf_counter() - t
        await post(bodies[0])
        for c in map(int, a.conc.split(",")):
            it = iter(bodies); lat = []
            async def w():
                for b in it:
                    lat.append(await post(b))
            t = time.perf_counter(); await asyncio.gather(*[w() for _ in range(c)]); dt = time.perf_counter() - t
            lat.sort()
            print(f"conc={c} batch={a.batch} texts/s={a.requests*a.batch/dt:.1f} p50={lat[len(lat)//2]*1e3:.0f}ms p95={lat[int(len(lat)*.95)]*1e3:.0f}ms", flush=True)
asyncio.run(main())
