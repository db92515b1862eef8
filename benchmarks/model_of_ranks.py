"""What a query of 10 or 100 million points would cost each of 8 or 64 GPUs: a model, fitted on one core and two.

No GPU was at hand. The formulas are those of the docstrings, checked by counting in the tests; the rates of a core were
measured (`bench_ranks.py`, and `build_graph` at 25,000 to 200,000 points); what a GPU and its network do is assumed.

Usage: python benchmarks/model_of_ranks.py
"""

import math

# Measured on one core of the machine of `bench_ranks.py`, in seconds of computing.
EMBEDDING = 0.43 / 50_000  # a point, through 512-512-20: 0.55 MFLOP
GRAPH = 2.0  # 50,000 points, d = k = 20, all that is shared out
GRAPH_POWER = 1.24  # from 0.89, 2.11, 4.50 and 11.69 s at 25,000, 50,000, 100,000 and 200,000 points
GRAPH_EVERYWHERE = 0.15  # 50,000 points, what every rank does: copies, cells
EDGE = 0.14e-6  # an edge, to prepare a query that explores
STEP = 0.018 / (50_000 * 20 * 11)  # an edge and column of one step of the walk
# Assumed of a GPU like NVIDIA's A100, and of its network.
PRODUCTS = 19_500 / 2 / 77  # cores: half of its 19.5 TFLOP/s, against 77 GFLOP/s measured here
MEMORY = 25  # cores, in scattered reads
LAUNCH, LAUNCHES = 5e-6, 15  # seconds a kernel, kernels for each block of rows and cell it may visit
NETWORK = 20e9  # bytes a second in and out of each GPU
LATENCY = 50e-6  # seconds a collective
# The setting.
D, K, C, SIZE, MINI_BATCH = 20, 20, 10, 200, 10
TABLE_ENTRIES = 2**25


def row(n: int, world: int) -> str:
    """The seconds, bytes and memory of one rank."""
    steps = max(1, round(math.log(n) / math.log(K)))
    own, edges, batches = n / world, K * n / world, SIZE / MINI_BATCH
    elsewhere = min(n * (world - 1) / world, K * own)
    blocks, cells = own / (TABLE_ENTRIES / n**0.5), n**0.5
    sent = {
        "embedding": 4 * D * own * (world - 1),
        "graph": 8 * n * (world - 1) / world + 8 * (2 * K + 1) * own,
        "exploring": batches * (16 * (MINI_BATCH + 1) * (world - 1) + (steps - 1) * 2**16),
        # At worst every mini-batch reaches everybody.
        "refining": (1 + batches) * (8 + steps * 8 * (C + 1)) * elsewhere,
    }
    seconds = {
        "embedding": EMBEDDING * own / PRODUCTS,
        "graph": GRAPH * (n / 50_000) ** GRAPH_POWER / world / PRODUCTS
        + GRAPH_EVERYWHERE * n / 50_000 / MEMORY
        + LAUNCH * LAUNCHES * blocks * cells,
        "exploring": EDGE * edges / MEMORY + batches * steps * LATENCY,
        "refining": (1 + batches) * (steps * STEP * edges * (C + 1) / MEMORY + 2 * (steps + 1) * LATENCY),
    }
    memory = {
        "given": 4 * D * n + 3 * 8 * n,
        "search": (20 * D + 60) * n + 60 * (K + 5) * own,
        "query": 60 * edges + 8 * (steps + 1) * (C + 1) * own,
    }
    stages = [f"{seconds[stage] + sent[stage] / NETWORK:,.1f} s, {sent[stage] / 1e9:,.2f} GB" for stage in sent]
    held = [f"{memory[part] / 1e9:,.1f}" for part in memory]
    return f"| {n // 10**6} million, T = {steps} | {world} | " + " | ".join(stages + held) + " |"


def table() -> str:
    head = "| points | GPUs | embedding | graph | query, exploring | query, refining, at worst "
    head += "| given, GB | while searching, GB | in the query, GB |"
    rows = [row(n, world) for n in (10**7, 10**8) for world in (8, 64)]
    return "\n".join([head, "|---" * 9 + "|", *rows])


if __name__ == "__main__":
    print(table())
