"""Load an OpenAI-style chat endpoint with streaming: closed loop, fixed prompts, fixed output length.

Copied unchanged from the project's shared tools, so that every server is measured by the same program.

usage: gen_load.py BASE_URL MODEL [--conc 1,8,32] [--requests 32] [--tokens 64] [--extra '{"ignore_eos":true}']
Prints output tok/s, TTFT p50/p95, inter-token p50/p95. Same seeded prompts for every server.
"""
import argparse, asyncio, json, random, time
import aiohttp

TOPICS = "foxes, tides, bridges, chess, volcanoes, tea, sailing, maps, clocks, gardens, trains, glass".split(", ")

def prompt(i):
    r = random.Random(i)
    return f"Write a long story about {r.choice(TOPICS)} and {r.choice(TOPICS)}. Number {i}. " + "Please be detailed. " * r.randint(0, 20)

async def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("base"); ap.add_argument("model"); ap.add_argument("--conc", default="1,8,32")
    ap.add_argument("--requests", type=int, default=32); ap.add_argument("--tokens", type=int, default=64)
    ap.add_argument("--extra", default="{}"); ap.add_argument("--key", default="x")
    a = ap.parse_args(); extra = json.loads(a.extra)
    hdr = {"content-type": "application/json", "authorization": f"Bearer {a.key}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=600)) as s:
        async def one(i):
            body = {"model": a.model, "messages": [{"role": "user", "content": prompt(i)}], "max_tokens": a.tokens,
                    "min_tokens": a.tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **extra}
            t0 = time.perf_counter(); ttft = None; last = None; gaps = []; ntok = 0
            async with s.post(a.base + "/v1/chat/completions", json=body, headers=hdr) as r:
                assert r.status == 200, (r.status, (await r.read())[:400])
                async for line in r.content:
                    if not line.startswith(b"data:"): continue
                    p = line[5:].strip()
                    if p == b"[DONE]": break
                    d = json.loads(p)
                    if d.get("usage"): ntok = d["usage"]["completion_tokens"]
                    if d.get("choices") and d["choices"][0].get("delta", {}).get("content"):
                        n = time.perf_counter()
                        if ttft is None: ttft = n - t0
                        else: gaps.append(n - last)
                        last = n
            return ttft, gaps, ntok
        await one(999)
        for c in map(int, a.conc.split(",")):
            it = iter(range(a.requests)); out = []
            async def w():
                for i in it: out.append(await one(i))
            t = time.perf_counter(); await asyncio.gather(*[w() for _ in range(c)]); dt = time.perf_counter() - t
            tt = sorted(x[0] for x in out if x[0]); g = sorted(y for x in out for y in x[1]); n = sum(x[2] for x in out)
            q = lambda v, p: (v[min(len(v) - 1, int(len(v) * p))] * 1e3 if v else float("nan"))
            print(f"conc={c} tok/s={n/dt:.1f} ttft p50={q(tt,.5):.0f} p95={q(tt,.95):.0f} ms itl p50={q(g,.5):.1f} p95={q(g,.95):.1f} ms tokens={n}", flush=True)
asyncio.run(main())
